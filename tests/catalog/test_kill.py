"""A writer that is killed: the catalog holds whole batches, and its checkpoint is at the end of the last one."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pytest

from adsum.projector.databases import open_catalog

from .conftest import Database

BATCH = 40
_WRITER = f"""
import asyncio, sys
from adsum.projector.databases import open_catalog
from tests.catalog.story import Story, key

async def main():
    catalog, story = open_catalog(sys.argv[1]), Story()
    await catalog.open()
    print("begun", flush=True)
    while True:
        await story.tell(catalog, *(story.register(key(number)) for number in range({BATCH})))

asyncio.run(main())
"""


@pytest.mark.parametrize("round", range(2))
async def test_a_killed_writer_leaves_whole_batches(database: Database, round: int) -> None:
    root = Path(__file__).parents[2]
    command = (sys.executable, "-c", _WRITER, database.dsn)
    writer = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=root)
    assert writer.stdout is not None
    assert await writer.stdout.readline() == b"begun\n"
    await asyncio.sleep(random.uniform(0.2, 0.5))  # to be killed anywhere in its writing
    assert writer.returncode is None
    writer.kill()
    await writer.wait()
    catalog = open_catalog(database.dsn)
    await catalog.open()
    at = await catalog.checkpoint()
    assert at is not None
    assert at.sequence > 0
    assert at.sequence % BATCH == 0
    assert await database.run("SELECT count(*), max(sequence) FROM events") == [(at.sequence, at.sequence)]
    assert await database.run("SELECT count(*), max(began_revision) FROM history") == [(at.sequence, at.sequence)]
    records = await catalog.records()
    assert [record.revision for record in records] == list(range(at.sequence - BATCH + 1, at.sequence + 1))
    assert at.event_id == records[-1].term
    await catalog.close()
