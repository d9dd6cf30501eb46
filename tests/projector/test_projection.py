"""What a projection writes down of the heartbeats, whenever it is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

from adsum.events.broker import Broker
from adsum.projector.beats import BeatReader
from adsum.projector.projection import FLUSH_TOGETHER, Projection
from adsum.projector.sqlite import SQLiteCatalog
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
