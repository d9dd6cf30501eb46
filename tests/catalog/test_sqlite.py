"""What only SQLite does: locks, busy files, full disks, files and folders that will not do."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adsum.projector.catalog import Checkpoint
from adsum.projector.errors import CatalogInUse, CatalogUnavailable, Refusal
from adsum.projector.sqlite import SQLiteCatalog

from .story import EPOCH, Story, key

NOBODY = 65534


@pytest.fixture
async def catalog(tmp_path: Path) -> AsyncIterator[SQLiteCatalog]:
    """A catalog in a file, impatient."""
    opened = SQLiteCatalog(tmp_path / "catalog.db", busy_timeout=0.05)
    await opened.open()
    yield opened
    await opened.close()


@contextmanager
def locked(file: Path) -> Iterator[sqlite3.Connection]:
    """Another program in the middle of writing to the file."""
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        other.close()


async def test_a_second_daemon_is_told_who_has_the_file(catalog: SQLiteCatalog, tmp_path: Path) -> None:
    second = SQLiteCatalog(tmp_path / "catalog.db")
    with pytest.raises(CatalogInUse, match=f"catalog.db is in use by process {os.getpid()}"):
        await second.open()
    await second.close()  # takes nothing from the first
    assert await catalog.checkpoint() is None
    with pytest.raises(CatalogInUse):
        await second.open()
    await catalog.close()
    await second.open()
    await second.close()


async def test_a_file_locked_for_good_is_unavailable_after_three_tries(catalog: SQLiteCatalog, tmp_path: Path) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    batch = story.batch([story.register(key())])
    with locked(tmp_path / "catalog.db"):
        began = time.perf_counter()
        with pytest.raises(CatalogUnavailable, match="locked"):
            await catalog.store(expected, batch)
        assert 3 * 0.05 + 0.12 <= time.perf_counter() - began < 2
        assert await catalog.checkpoint() == expected  # reading goes on
    await catalog.store(expected, batch)
    assert await catalog.records() == list(story.records.values())


async def test_a_file_locked_for_a_moment_is_tried_again(catalog: SQLiteCatalog, tmp_path: Path) -> None:
    with locked(tmp_path / "catalog.db") as other:
        release = threading.Timer(0.12, other.rollback)
        release.start()
        assert await catalog.begin(EPOCH) == Checkpoint(EPOCH, 0, "")
        release.join()


async def test_a_long_read_holds_up_no_write(catalog: SQLiteCatalog) -> None:
    assert catalog._reader is not None
    gate = threading.Event()
    began = threading.Event()
    read = asyncio.ensure_future(
        catalog._read(lambda db: (db.execute("SELECT 1").fetchall(), began.set(), gate.wait(10)))
    )
    await asyncio.to_thread(began.wait, 10)
    await asyncio.wait_for(catalog.begin(EPOCH), 2)
    assert not read.done()
    gate.set()
    await read


async def test_a_store_that_is_cancelled_is_whole_or_not_at_all(catalog: SQLiteCatalog) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    batch = story.batch([story.register(key(number)) for number in range(300)])
    task = asyncio.ensure_future(catalog.store(expected, batch))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await catalog.take()  # waits behind it, and no transaction was left open
    at = await catalog.checkpoint()
    assert at in (expected, Checkpoint(EPOCH, 300, batch.last_id, batch.head))
    assert len(await catalog.records()) == (0 if at == expected else 300)


async def test_a_full_disk_stores_nothing_and_passes(catalog: SQLiteCatalog) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    batch = story.batch([story.register(key(number)) for number in range(500)])
    await _in_its_thread(catalog, "PRAGMA max_page_count = 40")
    with pytest.raises(CatalogUnavailable, match="full"):
        await catalog.store(expected, batch)
    assert await catalog.checkpoint() == expected
    assert await catalog.records() == []
    await _in_its_thread(catalog, "PRAGMA max_page_count = 100000")
    await catalog.store(expected, batch)
    assert len(await catalog.records()) == 500


@pytest.mark.parametrize("content", [b"this is no database at all, but long enough to be looked at " * 20, b"\x7fELF"])
async def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "catalog.db"
    file.write_bytes(content)
    with pytest.raises(Refusal, match="not a database") as refused:
        await SQLiteCatalog(file).open()
    assert refused.value.remedy.startswith("Name another file")
    assert file.read_bytes() == content


async def test_the_database_of_another_program(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as other:
        other.execute("CREATE TABLE events (what TEXT)")
    other.close()
    with pytest.raises(Refusal, match="events already exists") as refused:
        await SQLiteCatalog(tmp_path / "catalog.db").open()
    assert "another program" in refused.value.remedy


async def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(Refusal, match="unable to open"):
        await SQLiteCatalog(tmp_path / "catalog.db").open()


async def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="there is no folder"):
        await SQLiteCatalog(tmp_path / "nowhere" / "catalog.db").open()


@pytest.mark.parametrize("existing", [False, True])
async def test_a_folder_or_file_that_may_not_be_written(tmp_path: Path, existing: bool) -> None:
    file = tmp_path / "catalog.db"
    if existing:
        made = SQLiteCatalog(file)
        await made.open()
        await made.close()
        file.chmod(0o444)
        (tmp_path / "catalog.db.lock").chmod(0o666)
    with as_nobody(tmp_path), pytest.raises(Refusal, match=r"cannot be locked|readonly|unable to open") as refused:
        await SQLiteCatalog(file).open()
    assert "Let this user" in refused.value.remedy


async def test_a_closed_catalog_says_so(tmp_path: Path) -> None:
    catalog = SQLiteCatalog(tmp_path / "catalog.db")
    with pytest.raises(CatalogUnavailable, match="not open"):
        await catalog.records()


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Root may write anywhere; be somebody else for a while, in a folder that he may enter and not write in."""
    modes = {parent: parent.stat().st_mode for parent in (folder, *folder.parents)}
    for parent in (folder, *(each for each in folder.parents if each != each.parent)):
        if not parent.stat().st_mode & 0o005:
            parent.chmod(0o755)
    folder.chmod(0o555)
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)
        for parent, mode in modes.items():
            if parent.stat().st_mode != mode:
                parent.chmod(mode)


async def _in_its_thread(catalog: SQLiteCatalog, sql: str) -> None:
    assert catalog._writer is not None
    await catalog._writer.execute_fetchall(sql)
