"""Leadership under faults: a leader that stands still and wakes, and a successor that lags behind the log."""

from __future__ import annotations

import asyncio
import re
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest

from adsum.clients import connect
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.signals import Departed
from adsum.events.subjects import TICK
from adsum.projector.leader import TAKEOVER_AFTER
from tests.daemons import AdsumDaemon, Service, adsumd
from tests.faults.test_stalls import batch_held_up
from tests.making import key
from tests.observing import (
    all_is_folded,
    an_instance_dies,
    changes_heard,
    check_catalog,
    fleet,
    flood,
    living,
    terms_of_office,
    that_change_nothing,
    ticks_heard,
    verdicts_on,
)
from tests.servers import Server
from tests.waiting import until

NAMES = ("first", "second")
USERS = ", ".join(f"{{user: {name}, password: a}}" for name in (*NAMES, "test"))
SPOKEN = re.compile(r'user:(\w+)" - <<- \[H?PUB (adsum\.\S+)')
TTL = 1.5
FLOOD, THOUSANDS = 500, 3000


class Bench:
    """Two daemons on a broker that writes down who says what: each has a user of its own there."""

    def __init__(self, server: Server, catalogs: list[str]) -> None:
        self._server, self.catalogs = server, catalogs
        self.daemons: dict[str, AdsumDaemon] = {}

    def url(self, user: str) -> str:
        """The broker for one of its users."""
        return self._server.url.replace("//", f"//{user}:a@")

    def spoken(self) -> list[tuple[str, str]]:
        """(user, subject) of all that was published, refused or not, in the order in which the broker read it."""
        return SPOKEN.findall((self._server.folder / "log").read_text(errors="replace"))

    def since_the_takeover(self, user: str) -> list[str]:
        """What a user said since the second one first said a tick."""
        spoken = self.spoken()
        return [subject for who, subject in spoken[spoken.index(("second", TICK)) :] if who == user]


@pytest.fixture
async def bench(tmp_path: Path, dsn: str) -> AsyncIterator[Bench]:
    """The first daemon leads, the second is ready to: each with an SQLite of its own, or both on one PostgreSQL."""
    server = await Server(tmp_path / "broker", f"trace: true\nauthorization {{ users: [{USERS}] }}").start()
    shared = dsn.startswith("postgresql")
    catalogs = {name: dsn if shared else f"sqlite:///{tmp_path / name}.db" for name in NAMES}
    bench = Bench(server, sorted(set(catalogs.values())))
    try:
        async with AsyncExitStack() as stack:
            for name in NAMES:
                daemon = adsumd(tmp_path / name, "--nats", bench.url(name), "--catalog", catalogs[name])
                bench.daemons[name] = await stack.enter_async_context(daemon)
                await until(lambda: "leading from tick" in bench.daemons["first"].stderr)
            yield bench
    finally:
        await server.stop()


@pytest.fixture
async def bus(bench: Bench) -> AsyncIterator[Broker]:
    """The test's own connection."""
    bus = Broker.open(BrokerSettings(url=bench.url("test")), "test")
    await bus.ready(10)
    yield bus
    await bus.close()


async def end(daemon: AdsumDaemon) -> None:
    """Stop it politely."""
    daemon.signal(signal.SIGTERM)
    assert await daemon.ended() == 0


@pytest.mark.parametrize("dsn", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
async def test_row_24_a_leader_that_was_paused_says_nothing_more(bench: Bench, bus: Broker, dsn: str) -> None:
    """Another one takes over in time; the one that wakes finds much to fold and somebody dead, and leaves it be."""
    first, second = (bench.daemons[name] for name in NAMES)
    async with changes_heard(bus) as changes, ticks_heard(bus) as ticks:
        async with connect(bench.url("test"), ping=0.15) as registry, fleet(registry, 10, ttl=TTL):
            await all_is_folded(bus)
            [leader] = terms_of_office(ticks)
            await Service(bus, key("dies-with-it", "mute"), ttl=TTL).register()
            first.signal(signal.SIGSTOP)
            await until(lambda: terms_of_office(ticks), lambda terms: len(terms) == 2, seconds=TAKEOVER_AFTER + 5)
            await flood(bus, FLOOD)
            await an_instance_dies(bus, "in-its-absence", ttl=0.5)
            first.signal(signal.SIGCONT)
            await until(lambda: "stepping down" in first.stderr or "leading no more" in first.stderr)
            await an_instance_dies(bus, "after-it-woke", ttl=0.5)
            assert [who == leader for who in terms_of_office(ticks)] == [True, False]
            assert set(bench.since_the_takeover("first")) <= {TICK}
            assert {event.by.name for _, event in await verdicts_on(bus, "mute")} == {ticks[-1].leader}
            assert await verdicts_on(bus, "orders") == []
        assert that_change_nothing(changes) == []
        await all_is_folded(bus)
        await end(second)
        await until(lambda: terms_of_office(ticks), lambda terms: terms[-1] == leader)  # it is fit to lead again
        await end(first)
    for catalog in bench.catalogs:
        await check_catalog(bus, catalog)


@contextmanager
def catalog_locked(dsn: str) -> Iterator[None]:
    """Nobody but the test can write to an SQLite catalog while the block runs."""
    locker = sqlite3.connect(dsn.removeprefix("sqlite:///"))
    try:
        locker.execute("BEGIN IMMEDIATE")
        yield
    finally:
        locker.close()


@pytest.mark.parametrize("dsn", ["sqlite"], indirect=True)
async def test_row_28_a_successor_that_lags_says_nothing_before_the_logs_end(bench: Bench, bus: Broker) -> None:
    """Its catalog takes nothing while thousands come and the leader dies: it does not lead, and sends nobody away."""
    first, second = (bench.daemons[name] for name in NAMES)
    async with (
        changes_heard(bus) as changes,
        connect(bench.url("test"), ping=0.15) as registry,
        fleet(registry, 10, ttl=TTL) as orders,
    ):
        with catalog_locked(bench.catalogs[1]):
            await flood(bus, THOUSANDS)
            await orders[0].update(weight=2)
            await until(lambda: len(living(changes)), lambda there: there >= THOUSANDS + 10, seconds=30)
            first.process.kill()
            await first.ended()
            await asyncio.sleep(TAKEOVER_AFTER + 2)  # the time after which it might lead if it had read all
            assert "leading from tick" not in second.stderr
            assert {subject for who, subject in bench.spoken() if who == "second"} == set()
        before = len(changes)
        await an_instance_dies(bus, "afterwards", ttl=0.5)
        told = {change.key for change in changes[before:]}
        assert told == {key("afterwards", "mute")}
        assert await verdicts_on(bus, "orders") == []


@pytest.mark.long
@pytest.mark.parametrize("dsn", ["postgresql"], indirect=True)
async def test_row_28_a_successor_on_a_shared_catalog_folds_before_it_speaks(
    bench: Bench, bus: Broker, dsn: str
) -> None:
    """The leader dies with thousands unfolded: its successor ticks, and says nothing else before it has folded all."""
    first = bench.daemons["first"]
    async with (
        changes_heard(bus) as changes,
        ticks_heard(bus) as ticks,
        connect(bench.url("test"), ping=0.15) as registry,
        fleet(registry, 10, ttl=TTL),
    ):
        await all_is_folded(bus)
        await until(lambda: len(living(changes)), lambda there: there == 10)
        async with batch_held_up(dsn):
            await flood(bus, THOUSANDS)
            first.process.kill()
            await first.ended()
            await until(lambda: terms_of_office(ticks), lambda terms: len(terms) == 2, seconds=TAKEOVER_AFTER + 5)
            led = len(ticks)
            await until(lambda: len(ticks) - led, lambda more: more >= 4)
            assert ticks[-1].revision < THOUSANDS
            assert {subject for who, subject in bench.spoken() if who == "second"} == {TICK}
        await until(lambda: len(living(changes)), lambda there: there == THOUSANDS + 10, seconds=30)
        await an_instance_dies(bus, "afterwards", ttl=0.5)
        assert {change.key for change in changes if isinstance(change, Departed)} == {key("afterwards", "mute")}
        assert that_change_nothing(changes) == []
        assert await verdicts_on(bus, "orders") == []
