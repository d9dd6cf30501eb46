"""A registry that restarts under load tells nobody anything that did not change."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adsum.clients import Registration, connect
from adsum.events.broker import Broker
from adsum.events.signals import Topology
from adsum.events.streams import TOPOLOGY
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import Service, adsumd, topology
from tests.making import key
from tests.observing import changes_heard, check_catalog, fleet, flood, living, that_change_nothing, verdicts_on
from tests.projector.test_daemon import FREE, connected
from tests.waiting import until

STANDING = 50
AT_ONCE = 20


@asynccontextmanager
async def load(bus: Broker, registrations: list[Registration]) -> AsyncIterator[None]:
    """Each instance describes itself anew again and again, and others come in crowds, while the block runs."""

    async def update(me: Registration) -> None:
        weight = 1.0
        while True:
            weight += 1
            await me.update(weight=weight)
            await asyncio.sleep(0.05)

    async def come() -> None:
        crowd = 0
        while True:
            crowd += 1
            await flood(bus, AT_ONCE, f"crowd-{crowd}")
            await asyncio.sleep(0.1)

    tasks = [asyncio.create_task(update(me)) for me in registrations] + [asyncio.create_task(come())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, asyncio.CancelledError) for error in ended), ended


async def told_more(changes: Sequence[Topology], count: int = 100) -> None:
    """Wait for so many more changes: somebody leads, and the load goes on."""
    before = len(changes)
    await until(lambda: len(changes), lambda now: now >= before + count, seconds=30)


async def told(bus: Broker, changes: Sequence[Topology], name: str) -> None:
    """Register one more and wait until it is told of: so is all that was due before."""
    await Service(bus, key(name, "marker"), ttl=600).register()
    await until(lambda: key(name, "marker") in living(changes), seconds=30)


async def stored_states(bus: Broker) -> int:
    """How many states were ever stored in ADSUM_TOPOLOGY."""
    info = await bus.stream_info(TOPOLOGY)
    assert info is not None
    return info.state.last_seq


@pytest.mark.parametrize("dsn", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
async def test_row_09_a_restart_under_load_tells_only_what_changed(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, dsn: str
) -> None:
    """Stopped politely, then killed, with updates and arrivals going on: each message tells more than the one before.

    And a restart while nothing goes on tells nothing at all.
    """
    arguments = ("--nats", nats.url, "--catalog", dsn)
    async with (
        changes_heard(broker) as changes,
        connect(nats.url, ping=0.5) as registry,
        fleet(registry, STANDING, heartbeat=1, ttl=15) as orders,
    ):
        async with load(broker, orders[::10]):
            for stop in (signal.SIGTERM, signal.SIGKILL):
                async with adsumd(tmp_path / "data", *arguments) as daemon:
                    await told_more(changes)
                    daemon.signal(stop)
                    await daemon.ended()
        async with adsumd(tmp_path / "data", *arguments):
            await told(broker, changes, "after-the-load")
        before = len(changes)
        async with adsumd(tmp_path / "data", *arguments):
            await told(broker, changes, "after-the-rest")
        assert len(changes) == before + 1
        assert that_change_nothing(changes) == []
        assert await verdicts_on(broker, "orders") == []
        await check_catalog(broker, dsn)
        assert len(changes) == await stored_states(broker)  # the test heard them all


async def test_row_09_a_restart_with_its_broker_tells_nothing(tmp_path: Path) -> None:
    """The broker that adsumd brings goes and comes with it; the topology that it stored stands."""
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        bus = await connected(daemon.url)
        await flood(bus, STANDING)
        await until(lambda: stored_states(bus), lambda stored: stored == STANDING)
        await bus.close()
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        bus = await connected(daemon.url)
        await Service(bus, key("late"), ttl=600).register()
        await until(lambda: topology(bus, key("late")))
        assert await stored_states(bus) == STANDING + 1
        await bus.close()
