"""How far the fold stands: what waits for it may trust it (fault 28)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.js.api import ClusterInfo, StreamInfo

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable
from adsum.events.ids import new_epoch
from adsum.events.notes import Notes
from adsum.events.streams import EVENTS, read_epoch
from adsum.projector.catalog import Checkpoint
from adsum.projector.fold import Batch
from adsum.projector.sqlite import SQLiteCatalog
from adsum.projector.writer import LOOKS, Writer
from tests.daemons import Service
from tests.making import key
from tests.waiting import until


class HeldUp(SQLiteCatalog):
    """A catalog that stores only while it may."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may = asyncio.Event()
        self.may.set()

    async def store(self, expected: Checkpoint, batch: Batch) -> Checkpoint:
        await self.may.wait()
        return await super().store(expected, batch)


@asynccontextmanager
async def writing(broker: Broker, catalog: HeldUp) -> AsyncIterator[Writer]:
    """A writer that runs for as long as the block."""
    await catalog.open()
    writer = Writer(broker, catalog, await read_epoch(broker), lambda _: None)
    await writer.load()
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await catalog.close()


async def test_who_waits_for_the_logs_end_waits_until_it_is_folded(broker: Broker, tmp_path: Path) -> None:
    """Also a writer that had read to the end before: a leader must not judge or announce from an older state."""
    catalog = HeldUp(tmp_path / "catalog.db")
    async with writing(broker, catalog) as writer:
        await Service(broker, key("a")).register()
        await writer.reached(await writer.log_end())
        assert key("a") in writer.records
        catalog.may.clear()
        await Service(broker, key("b")).register()
        assert await writer.log_end() == 2
        waiting = asyncio.create_task(writer.reached(2))
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done, "it did not wait for what is not folded yet"
        catalog.may.set()
        await asyncio.wait_for(waiting, 5)
        assert key("b") in writer.records


async def test_a_log_whose_last_sequences_hold_nothing_has_an_end_all_the_same(broker: Broker, tmp_path: Path) -> None:
    """As a full disk leaves it; waiting for one of them would be for ever."""
    info = await broker.stream_info(EVENTS)
    assert info is not None
    info.config.deny_delete = False
    await broker._js.delete_stream(EVENTS)
    await broker.create_stream(info.config)
    await Service(broker, key("a")).register()
    for _ in range(3):
        await broker.store(EVENTS, "adsum.v1.default.event.orders.b", b"{}", {})
    for sequence in (2, 3, 4):
        await broker._js.delete_msg(EVENTS, sequence)
    async with writing(broker, HeldUp(tmp_path / "catalog.db")) as writer:
        assert await writer.log_end() == 1
        await asyncio.wait_for(writer.reached(await writer.log_end()), 10)
        await until(lambda: key("a") in writer.records)


class AfterAnElection(Broker):
    """A connection whose first answers about the log came from a server that leads no majority and lags behind."""

    old: StreamInfo
    left = LOOKS

    async def stream_info(self, stream: str) -> StreamInfo | None:
        self.left -= 1
        return self.old if self.left >= 0 else await super().stream_info(stream)


@pytest.mark.parametrize("lacks", ["its end", "its epoch"])
async def test_the_word_of_a_server_that_may_not_know_is_not_taken_for_its_successors(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """A leader is elected just after the last look: what was said before is not believed for that."""
    monkeypatch.setattr("adsum.projector.writer.LOOK_AGAIN", 0.01)
    old = await broker.stream_info(EVENTS)
    assert old is not None
    old.config.num_replicas, old.cluster = 3, ClusterInfo(leader=None)
    if lacks == "its epoch":
        old.config.metadata = Notes(epoch=new_epoch(())).metadata()
    await Service(broker, key("a")).register()
    lagging = AfterAnElection.open(broker.settings, "test")
    lagging.old = old
    try:
        await lagging.ready(10)
        async with writing(broker, HeldUp(tmp_path / "catalog.db")) as writer:
            await writer.reached(1)
            writer._broker = lagging
            with pytest.raises(BrokerUnavailable, match="may not know"):
                await writer.verify()
            await writer.verify()
    finally:
        await lagging.close()
