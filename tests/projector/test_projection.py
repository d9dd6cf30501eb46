"""What a projection writes down of the heartbeats, whenever it is stopped, and how it keeps its catalog tidy."""

from __future__ import annotations

import asyncio
from pathlib import Path

from adsum.events.broker import Broker
from adsum.events.streams import read_epoch
from adsum.projector.beats import BeatReader
from adsum.projector.projection import FLUSH_TOGETHER, Projection
from adsum.projector.sqlite import UNTIDY_FROM, SQLiteCatalog
from tests.daemons import Service
from tests.making import key
from tests.waiting import until

LIVES = 20 * FLUSH_TOGETHER


async def test_a_stop_in_the_middle_of_a_flush_loses_nothing_that_was_heard(broker: Broker, tmp_path: Path) -> None:
    """The part that was not written down yet is written down at last: else its grace would be renewed."""
    catalog = SQLiteCatalog(tmp_path / "catalog.db")
    await catalog.open()
    await catalog.begin("epoch")
    projection = Projection(broker, catalog, "epoch", BeatReader(broker, lambda: None))
    projection._generation = await catalog.take()
    for life in range(LIVES):
        projection.beats.hearing.begin(f"life {life}", 1.0)
    flushing = asyncio.create_task(projection._flush_for_ever())
    projection.ticked()

    async def written() -> int:
        return len((await catalog.observed()).heard)

    await until(written)
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    assert await written() == LIVES
    await catalog.close()


async def test_what_many_events_wrote_does_not_wait_for_the_next_tick(broker: Broker, tmp_path: Path) -> None:
    """Else all of it goes to the disk at once, and the flush of the log waits behind it."""
    catalog, epoch = SQLiteCatalog(tmp_path / "catalog.db"), await read_epoch(broker)
    await catalog.open()
    projection = Projection(broker, catalog, epoch, BeatReader(broker, lambda: None))
    projection._generation = await catalog.take()
    await projection.writer.load()
    tidying = [asyncio.create_task(projection.writer.run()), asyncio.create_task(projection._tidy_for_ever())]
    most = 0
    try:
        for number in range(1, 200):  # one by one, so that each is a transaction of its own
            await Service(broker, key(f"a-{number}"), ttl=300).register()
            await projection.writer.reached(number)
            most = max(most, catalog._pages)
        await until(lambda: (tmp_path / "catalog.db").stat().st_size > 50 * 4096)  # what is in the WAL is not in it
    finally:
        for task in tidying:
            task.cancel()
        await asyncio.gather(*tidying, return_exceptions=True)
        await catalog.close()
    assert UNTIDY_FROM - 50 < most < UNTIDY_FROM + 500
