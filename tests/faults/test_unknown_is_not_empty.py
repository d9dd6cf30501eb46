"""An outage of the registry never looks like "nobody is there": row 23."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from adsum.clients import Directory, NotLoaded, connect
from adsum.clients.directory import STALE_AFTER
from tests.cli.programs import Adsum
from tests.daemons import Service, adsumd
from tests.databases import PostgresServer
from tests.making import key
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A nats-server."""
    server = await Server(tmp_path / "server").start()
    yield server
    await server.stop()


def knows_nothing(directory: Directory) -> None:
    """Every way to ask it says so."""
    asks: tuple[Callable[[], object], ...] = (
        directory.instances,
        directory.__len__,
        lambda: directory.instances(routable=True),
        lambda: directory.get("orders", "a"),
        lambda: directory.get("orders", "nobody"),
    )
    for ask in asks:
        with pytest.raises(NotLoaded):
            ask()
    assert (directory.state, directory.age) == ("loading", math.inf)
    assert not directory.changes()._pending


async def test_row_23_who_starts_without_a_registry_knows_nothing_until_there_is_one(
    tmp_path: Path, server: Server
) -> None:
    """Without a broker, and on one where no adsumd ever ran, a cache raises NotLoaded and the command ends with an
    error and prints no list; "none" is said only once the registry has said so."""
    command = Adsum(server.url)
    await server.kill()
    async with connect(server.url) as registry, registry.directory("orders", wait=0.1) as directory:
        knows_nothing(directory)
        asked = await command("instances", "orders", "--json")
        assert (asked.code, asked.out) == (3, "")
        await server.start()
        await registry.broker.ready(20)
        await until(lambda: "ADSUM_EVENTS" in directory._outage.reason)  # it asked the broker that has no streams
        knows_nothing(directory)
        asked = await command("instances", "orders", "--json")
        assert (asked.code, asked.out) == (1, "")
        async with adsumd(tmp_path / "data", "--nats", server.url):
            assert await directory.loaded(20)
            assert (directory.instances(), directory.state) == ((), "live")
            asked = await command("instances", "orders", "--json")
            assert (asked.code, asked.json) == (0, [])
            bus = await connected(server.url)
            await Service(bus, key("a"), heartbeat=100, ttl=300).register()
            await until(lambda: len(directory), (1).__eq__)
            await bus.close()


@pytest.mark.long
async def test_row_23_what_nobody_proves_any_more_is_shown_as_stale(tmp_path: Path, server: Server) -> None:
    """Once no adsumd runs, caches that follow a service with instances and one without answer with what they knew and
    say `stale` with their age; one that starts then comes to say so too; the command tells of it by its exit code."""
    command = Adsum(server.url)
    async with connect(server.url) as registry:
        async with adsumd(tmp_path / "data", "--nats", server.url):
            bus = await connected(server.url)
            await Service(bus, key("a"), heartbeat=100, ttl=300).register()
            orders, others = registry.directory("orders"), registry.directory("others")
            await orders.__aenter__()
            await others.__aenter__()
            await until(lambda: len(orders), (1).__eq__)
            assert (await command("status")).code == 0
        async with registry.directory() as late:
            caches = (orders, others, late)
            await until(lambda: {cache.state for cache in caches}, {"stale"}.__eq__, seconds=STALE_AFTER + 20)
            assert [len(cache) for cache in caches] == [1, 0, 1]
            assert all(STALE_AFTER < cache.age < math.inf for cache in caches)
            assert (await command("status")).code == 1
            asked = await command("instances", "orders", "--json")
            assert (asked.code, [one["id"] for one in asked.json]) == (0, ["a"])
            async with adsumd(tmp_path / "data", "--nats", server.url):
                await until(lambda: {cache.state for cache in caches}, {"live"}.__eq__, seconds=30)
                assert (await command("status")).code == 0
        await asyncio.gather(*(cache.__aexit__(None, None, None) for cache in (orders, others)))
        await bus.close()


@pytest.mark.long
async def test_row_23_without_the_database_caches_turn_stale_and_keep_what_they_know(
    tmp_path: Path, server: Server, postgres_server: PostgresServer, empty_postgres: str
) -> None:
    """The database is gone: no cache loses anybody, all say `stale` once nobody leads, and are live when it is back."""
    async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", empty_postgres):
        bus = await connected(server.url)
        await Service(bus, key("a"), heartbeat=100, ttl=300).register()
        async with connect(server.url) as registry, registry.directory("orders") as orders:
            await until(lambda: len(orders), (1).__eq__)
            postgres_server.crash()
            try:
                await Service(bus, key("b"), heartbeat=100, ttl=300).register()
                await until(lambda: orders.state, "stale".__eq__, seconds=90)
                assert [one.id for one in orders.instances()] == ["a"]
                assert (await Adsum(server.url)("status")).code == 1
            finally:
                postgres_server.start()
            await until(lambda: {one.id for one in orders.instances()}, {"a", "b"}.__eq__, seconds=60)
            await until(lambda: orders.state, "live".__eq__, seconds=30)
        await bus.close()
