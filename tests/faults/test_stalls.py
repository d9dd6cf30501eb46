"""Whoever observes stands still: the projector, the broker, the database. Nobody is buried for it, nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from adsum.clients import connect
from adsum.events.broker import Broker, BrokerSettings
from tests.daemons import AdsumDaemon, adsumd
from tests.databases import PostgresServer
from tests.observing import all_is_folded, an_instance_dies, check_catalog, fleet, flood, refold, verdicts_on
from tests.servers import Server
from tests.waiting import until

SIZE = 24
TTL = 1.5
FLOOD = 2000
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def stall(stop: Callable[[], None], go_on: Callable[[], None]) -> None:
    """Let somebody stand still for five TTLs."""
    stop()
    try:
        await asyncio.sleep(5 * TTL)  # the stall itself
    finally:
        go_on()


@asynccontextmanager
async def living_registry(folder: Path, dsn: str) -> AsyncIterator[tuple[Server, AdsumDaemon, Broker]]:
    """A broker, a daemon, and instances that live. What the block does to the first two must bury nobody.

    At its end somebody dies, so that time has passed and was judged; then nobody else has lapsed, and the catalog is
    what the log folds to.
    """
    server = await Server(folder / "broker").start()
    bus = Broker.open(BrokerSettings(url=server.url), "test", ping=0.5)
    try:
        async with adsumd(folder / "data", "--nats", server.url, "--catalog", dsn) as daemon:
            async with connect(server.url, ping=0.15) as registry, fleet(registry, SIZE, ttl=TTL):
                await bus.ready(10)
                await all_is_folded(bus)
                yield server, daemon, bus
                await bus.ready(10)
                await an_instance_dies(bus, "in-the-end", ttl=1)
                assert await verdicts_on(bus, "orders") == []
            await all_is_folded(bus)
        await check_catalog(bus, dsn)
    finally:
        await bus.close()
        await server.stop()


async def projector_stalls(folder: Path, dsn: str) -> None:
    """It has heard nobody for five TTLs when it wakes."""
    async with living_registry(folder, dsn) as (_, daemon, _bus):
        await stall(lambda: daemon.signal(signal.SIGSTOP), lambda: daemon.signal(signal.SIGCONT))


async def broker_stalls(folder: Path, dsn: str) -> None:
    """It has taken no heartbeat for five TTLs when it wakes."""
    async with living_registry(folder, dsn) as (server, _daemon, _bus):
        await stall(server.pause, server.go_on)


async def test_row_05_an_observer_that_stalls_buries_nobody(tmp_path: Path) -> None:
    """The projector, and the broker: no living instance lapses for it. (Both at once: they mostly wait.)"""
    async with asyncio.TaskGroup() as at_once:
        for scenario in (projector_stalls, broker_stalls):
            folder = tmp_path / scenario.__name__
            at_once.create_task(scenario(folder, f"sqlite:///{folder / 'catalog.db'}"))


@pytest.mark.long
async def test_row_05_a_projector_on_postgresql_that_stalls_buries_nobody(tmp_path: Path, postgres: str) -> None:
    """The same with a catalog that others may have changed meanwhile."""
    await projector_stalls(tmp_path, postgres)


@asynccontextmanager
async def batch_held_up(dsn: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """A lock that stops the writer between two statements of a batch; what is given awaits that it stands there."""
    locker, watcher = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    try:
        await locker.execute("BEGIN; LOCK TABLE history IN ACCESS EXCLUSIVE MODE")
        yield lambda: until(lambda: watcher.fetchval(WAITING))
    finally:
        for connection in (locker, watcher):
            connection.terminate()  # a database that was killed answers no goodbye


@pytest.mark.long
@pytest.mark.parametrize("away", ["killed", "paused"])
async def test_row_05_a_database_that_goes_in_the_middle_of_a_batch(
    tmp_path: Path, postgres_server: PostgresServer, away: str
) -> None:
    """Half of a batch is written when it goes: each event is folded once all the same, and nobody lapses."""
    dsn = postgres_server.dsn(await postgres_server.clone())
    async with living_registry(tmp_path, dsn) as (_, daemon, bus):
        async with batch_held_up(dsn) as stands_there:
            flooding = asyncio.create_task(flood(bus, FLOOD))
            await stands_there()
            postgres_server.crash() if away == "killed" else postgres_server.pause()
        await flooding
        if away == "killed":
            await until(lambda: "trying again" in daemon.stderr, seconds=20)
            postgres_server.start()
        else:
            await stall(lambda: None, postgres_server.resume)
        await all_is_folded(bus)
        folded = await refold(bus)
        assert len(folded.entries) == SIZE + FLOOD
