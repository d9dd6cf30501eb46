"""Whoever observes stands still: the projector, the broker, the database. Nobody is buried for it, nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from adsum.clients import connect
from adsum.events.broker import Broker, BrokerSettings
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import adsumd
from tests.databases import PostgresServer
from tests.observing import all_is_folded, an_instance_dies, check_catalog, fleet, flood, verdicts_on
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


@pytest.mark.parametrize("dsn", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
async def test_row_05_a_projector_that_stalls_buries_nobody(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, dsn: str
) -> None:
    """Stopped for five TTLs, it has heard nobody for so long, and yet no living instance lapses."""
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", dsn) as daemon:
        async with connect(nats.url, ping=0.15) as registry, fleet(registry, SIZE, ttl=TTL):
            await all_is_folded(broker)
            await stall(lambda: daemon.signal(signal.SIGSTOP), lambda: daemon.signal(signal.SIGCONT))
            await an_instance_dies(broker, "after-the-stall")
            assert await verdicts_on(broker, "orders") == []
        await all_is_folded(broker)
    await check_catalog(broker, dsn)


async def test_row_05_a_broker_that_stalls_buries_nobody(tmp_path: Path) -> None:
    """Stopped for five TTLs, it has taken no heartbeat for so long, and yet no living instance lapses."""
    server = await Server(tmp_path / "broker").start()
    bus = Broker.open(BrokerSettings(url=server.url), "test", ping=0.5)
    try:
        async with adsumd(tmp_path / "data", "--nats", server.url):
            async with connect(server.url, ping=0.15) as registry, fleet(registry, SIZE, ttl=TTL):
                await all_is_folded(bus)
                await stall(server.pause, server.go_on)
                await bus.ready(10)
                await an_instance_dies(bus, "after-the-stall")
                assert await verdicts_on(bus, "orders") == []
            await all_is_folded(bus)
        await check_catalog(bus, f"sqlite:///{tmp_path / 'data' / 'catalog.db'}")
    finally:
        await bus.close()
        await server.stop()


@asynccontextmanager
async def batch_held_up(dsn: str) -> AsyncIterator[Callable[[], object]]:
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
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, postgres_server: PostgresServer, away: str
) -> None:
    """Half of a batch is written when it goes: each event is folded once all the same, and nobody lapses."""
    dsn = postgres_server.dsn(await postgres_server.clone())
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", dsn) as daemon:
        async with connect(nats.url, ping=0.15) as registry, fleet(registry, SIZE, ttl=TTL):
            await all_is_folded(broker)
            async with batch_held_up(dsn) as stands_there:
                flooding = asyncio.create_task(flood(broker, FLOOD))
                await stands_there()
                postgres_server.crash() if away == "killed" else postgres_server.pause()
            said = await flooding
            if away == "killed":
                await until(lambda: "trying again" in daemon.stderr, seconds=20)
                postgres_server.start()
            else:
                await stall(lambda: None, postgres_server.resume)
            await all_is_folded(broker)
            await an_instance_dies(broker, "after-it")
            assert await verdicts_on(broker, "orders") == []
        await all_is_folded(broker)
    await check_catalog(broker, dsn, said)
