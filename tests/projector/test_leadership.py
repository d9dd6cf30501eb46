"""Several daemons on one broker: one leads, another takes over."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_tick
from adsum.events.lifecycle import Registered
from adsum.events.settings import BrokerSettings
from adsum.events.signals import Instance
from adsum.events.streams import BEATS
from adsum.projector.databases import open_catalog
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.leader import RESIGNED, TAKEOVER_AFTER
from tests.daemons import AdsumDaemon, Service, adsumd, events_of, topology
from tests.databases import PostgresServer
from tests.making import key
from tests.projector.test_lifecycle import TTL
from tests.waiting import until


@pytest.fixture
async def bus(nats: EmbeddedBroker) -> AsyncIterator[Broker]:
    """A connection to the daemons' broker."""
    broker = Broker.open(BrokerSettings(url=nats.url), "test")
    await broker.ready(10)
    yield broker
    await broker.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def two(
    request: pytest.FixtureRequest, tmp_path: Path, nats: EmbeddedBroker
) -> AsyncIterator[tuple[AdsumDaemon, AdsumDaemon]]:
    """Two daemons on one broker: each with an SQLite of its own, or both on one PostgreSQL."""
    catalog: list[str] = []
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        catalog = ["--catalog", server.dsn(await server.clone())]
    async with AsyncExitStack() as stack:
        daemons = [
            await stack.enter_async_context(adsumd(tmp_path / name, "--nats", nats.url, *catalog))
            for name in ("one", "two")
        ]
        yield daemons[0], daemons[1]


async def leader(bus: Broker) -> str:
    """Who published the last tick."""
    raw = await bus.last_message(BEATS, subjects.TICK)
    return decode_tick(raw.data or b"").leader if raw is not None else RESIGNED


async def another_than(bus: Broker, before: str, within: float) -> str:
    """Who leads once `before` does not any more."""
    changed: Callable[[str], bool] = lambda who: who not in (before, RESIGNED)  # noqa: E731
    return await until(lambda: leader(bus), changed, seconds=within)


async def leading(bus: Broker, daemons: tuple[AdsumDaemon, AdsumDaemon]) -> tuple[AdsumDaemon, AdsumDaemon, str]:
    """(the leader, the other, the leader's name)."""
    name = await another_than(bus, RESIGNED, within=10)
    one, two = daemons
    started = await until(
        lambda: [d for d in daemons if "leading from tick" in d.stderr], lambda found: len(found) == 1
    )
    return (one, two, name) if started == [one] else (two, one, name)


async def test_a_leader_that_ends_politely_is_replaced_at_once(
    bus: Broker, two: tuple[AdsumDaemon, AdsumDaemon]
) -> None:
    first, _, name = await leading(bus, two)
    service = Service(bus, key(), ttl=TTL)
    await service.register()
    async with service.beating():
        await until(lambda: topology(bus, key()))
        first.signal(signal.SIGTERM)
        await another_than(bus, name, within=TAKEOVER_AFTER - 1)
        assert await first.ended() == 0
        await Service(bus, key("late"), ttl=TTL).register()
        await until(lambda: topology(bus, key("late")))
        assert [type(event) for event in await events_of(bus, key())] == [Registered]


async def test_a_killed_leader_is_replaced(bus: Broker, two: tuple[AdsumDaemon, AdsumDaemon]) -> None:
    first, _, name = await leading(bus, two)
    service = Service(bus, key(), ttl=TTL)
    await service.register()
    async with service.beating():
        await until(lambda: topology(bus, key()))
        first.process.kill()
        await first.ended()
        await another_than(bus, name, within=TAKEOVER_AFTER + 5)
        await Service(bus, key("late"), ttl=TTL).register()
        await until(lambda: topology(bus, key("late")))
        seen = await topology(bus, key())
        assert isinstance(seen, Instance)
        assert seen.liveness == "up"


async def test_a_copied_data_folder_does_not_lead_beside_its_original(tmp_path: Path, nats: EmbeddedBroker) -> None:
    bus = Broker.open(BrokerSettings(url=nats.url), "test")
    await bus.ready(10)
    async with adsumd(tmp_path / "one", "--nats", nats.url):
        await until(lambda: (tmp_path / "one" / "daemon-id").exists())
    shutil.copytree(tmp_path / "one", tmp_path / "copy", ignore=shutil.ignore_patterns("lock", "*.lock"))
    async with (
        adsumd(tmp_path / "one", "--nats", nats.url) as one,
        adsumd(tmp_path / "copy", "--nats", nats.url) as two,
    ):
        await until(lambda: "leading from tick" in one.stderr + two.stderr)
        began = time.monotonic()
        await until(lambda: time.monotonic() - began, lambda passed: passed > TAKEOVER_AFTER + 2)
        said = one.stderr + two.stderr  # the copy may take its original's tick for its own once, when it starts
        assert said.count("leading from tick") - said.count("stepping down") == 1
        assert said.count("stepping down") <= 1
    await bus.close()


async def test_fenced_in_the_last_moment_it_still_ends(tmp_path: Path, nats: EmbeddedBroker, postgres: str) -> None:
    """A successor takes the catalog while the leader is told to end: it ends, and cleanly."""
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", postgres) as daemon:
        await until(lambda: "leading from tick" in daemon.stderr)
        successor = open_catalog(postgres)
        await successor.open()
        await successor.take()
        daemon.signal(signal.SIGTERM)
        assert await daemon.ended() == 0
        await successor.close()
