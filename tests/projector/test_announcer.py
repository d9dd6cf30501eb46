"""What an announcer had decided to tell, and what became true before it might."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from nats.js.api import StreamInfo

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.signals import Departed
from adsum.events.streams import TOPOLOGY, read_epoch
from adsum.projector.announcer import Announcer
from adsum.projector.leader import Lease
from adsum.projector.mirror import Stored
from adsum.projector.record import instance_of
from adsum.projector.sqlite import SQLiteCatalog
from adsum.projector.writer import Writer
from tests.daemons import Service, topology
from tests.making import key, record
from tests.waiting import until


async def test_what_was_told_while_it_waited_for_the_lease_is_not_replaced(broker: Broker, tmp_path: Path) -> None:
    """It knows the newer message by then, but what it is about to say was decided before: so the broker refuses it."""
    catalog, epoch, lease, a = SQLiteCatalog(tmp_path / "catalog.db"), await read_epoch(broker), Lease(), key("a")
    await catalog.open()
    writer = Writer(broker, catalog, epoch, lambda _: None)
    await writer.load()
    announcer = Announcer(broker, catalog, writer, epoch, lease)
    writer._on_commit = announcer.committed
    tasks = [asyncio.create_task(writer.run()), asyncio.create_task(announcer.run())]
    try:
        await Service(broker, a, ttl=300).register()
        await writer.reached(1)
        await until(lambda: not announcer._due and announcer._whole.is_set())  # decided, and waiting for the lease
        tasks[0].cancel()  # from here on it lags behind the log
        newer = instance_of(record(a, revision=2), epoch)
        await Service(broker, key("b"), ttl=300).register()  # so that the log has this revision
        await broker.store(TOPOLOGY, subjects.topology(a), encode(newer), {})
        await until(lambda: announcer.mirror.of(a))
        lease.renew(time.monotonic())
        await until(announcer.complete.is_set)
        assert await topology(broker, a) == newer
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await catalog.close()


async def test_a_catalog_that_is_away_is_waited_for(broker: Broker, tmp_path: Path) -> None:
    """How somebody left whom only the topology knows is asked of the catalog, again and again until it answers."""
    catalog, epoch, lease, stray = SQLiteCatalog(tmp_path / "catalog.db"), await read_epoch(broker), Lease(), key("a")
    await catalog.open()
    writer = Writer(broker, catalog, epoch, lambda _: None)
    await writer.load()
    await broker.store(TOPOLOGY, subjects.topology(stray), encode(instance_of(record(stray, revision=0), epoch)), {})
    await catalog.close()
    announcer = Announcer(broker, catalog, writer, epoch, lease)
    running = asyncio.create_task(announcer.run())
    try:
        await until(lambda: [outage.reason for outage in announcer.outages if "not open" in outage.reason])
        await catalog.open()
        lease.renew(time.monotonic())
        await until(lambda: topology(broker, stray), lambda told: isinstance(told, Departed))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await catalog.close()


async def test_what_is_told_while_the_stream_is_looked_at_is_not_missing_from_it(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is older than what was acknowledged since: taken for a purge, it had the whole read anew."""
    catalog, epoch = SQLiteCatalog(tmp_path / "catalog.db"), await read_epoch(broker)
    announcer = Announcer(broker, catalog, Writer(broker, catalog, epoch, lambda _: None), epoch, Lease())

    async def tell(number: int) -> None:
        state = encode(instance_of(record(key(f"a-{number}"), revision=number), epoch))
        sequence = await broker.store(TOPOLOGY, subjects.topology(key(f"a-{number}")), state, {})
        announcer.mirror.note(key(f"a-{number}"), Stored(sequence, epoch, number, present=True), 0.0)

    asking = broker.stream_info

    async def asked(stream: str) -> StreamInfo | None:
        answer = await asking(stream)
        await tell(2)
        return answer

    await tell(1)
    monkeypatch.setattr(broker, "stream_info", asked)
    assert not await announcer._fewer_than_known()
    monkeypatch.undo()
    announcer.mirror.note(key("a-3"), Stored(3, epoch, 3, present=True), 0.0)
    assert await announcer._fewer_than_known()
