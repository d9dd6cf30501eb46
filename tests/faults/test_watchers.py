"""Caches come and go, and leave nothing behind: row 15, and what one that was stopped for long costs."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no stubs
import pytest

from adsum.clients import connect
from adsum.events.broker import Broker
from tests.daemons import Service, adsumd, topology
from tests.making import description, key
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until
from tests.watchers import Watchers

ASKED = 'http: "127.0.0.1:-1"'
"""A server that can be asked about itself."""
STRICT = ASKED + '\nmax_pending: 1MB\nwrite_deadline: "1s"'
"""One that cuts off who takes nothing for a second, or has a megabyte to take."""
MB = 1 << 20
SETTLED = 6.0
"""Seconds after which whoever goes on has read what had reached it before it was cut off."""


@pytest.fixture
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    """A nats-server that can be asked how it is, with an adsumd that leads."""
    server = await Server(tmp_path / "server", getattr(request, "param", ASKED)).start()
    try:
        async with adsumd(tmp_path / "data", "--nats", server.url):
            yield server
    finally:
        await server.stop()


@pytest.fixture
async def bus(server: Server) -> AsyncIterator[Broker]:
    """A connection of the test's own."""
    bus = await connected(server.url)
    yield bus
    await bus.close()


async def fifty(bus: Broker) -> list[Service]:
    """Instances that are registered and told of, each with some four kilobytes to tell."""
    services = [Service(bus, key(f"i{number}"), heartbeat=100, ttl=300) for number in range(50)]
    for service in services:
        service.said = description(heartbeat=100, ttl=300, metadata={f"k{n}": "x" * 200 for n in range(19)})
        await service.register()
    await until(lambda: topology(bus, services[-1].key), seconds=20)
    return services


async def held(server: Server) -> tuple[int, int, int]:
    """(connections, subscriptions, consumers) of the server."""
    about, streams = await server.monitor("varz"), await server.monitor("jsz")
    return about["connections"], about["subscriptions"], streams["consumers"]


def resident(pid: int) -> float:
    """Megabytes of memory of a process."""
    return float(psutil.Process(pid).memory_info().rss) / MB


async def come_and_die(
    server: Server, processes: int, connections: int, caches: int, readers: int
) -> tuple[float, float]:
    """These caches load, are live, and are killed; megabytes of the server while they were there and after."""
    before = await held(server)
    watchers = await asyncio.gather(
        *(Watchers.start(server.url, connections, caches, readers) for _ in range(processes))
    )
    try:
        await asyncio.gather(*(one.ready() for one in watchers))
        for one in watchers:
            seen = await one.look()
            assert seen["states"] == ["live"]
            assert len(seen["shown"]) == 50
        during = await held(server)
        assert during[0] == before[0] + processes * connections
        assert during[1] >= before[1] + 3 * processes * connections  # the caches of a connection share theirs
        assert during[2] == before[2] + processes * readers
        most = resident(server.pid)
    finally:
        for one in watchers:
            await one.kill()
    await until(lambda: held(server), before.__eq__, seconds=60)
    return most, resident(server.pid)


@pytest.mark.parametrize(
    ("processes", "connections", "caches", "readers", "rounds"),
    [(4, 5, 10, 0, 1), pytest.param(10, 10, 10, 4, 3, marks=pytest.mark.long)],
)
async def test_row_15_caches_that_are_killed_leave_nothing_at_the_server(
    server: Server, bus: Broker, processes: int, connections: int, caches: int, readers: int, rounds: int
) -> None:
    """After `kill -9` of hundreds of caches, some of them reading a snapshot, the server's connections, subscriptions
    and consumers are what they were, and another time costs it no further memory."""
    await fifty(bus)
    idle = resident(server.pid)
    used = [await come_and_die(server, processes, connections, caches, readers) for _ in range(rounds)]
    print(f"{processes * connections * caches} caches: nats-server {idle:.0f} MB idle, (with them, after) {used}")
    assert used[-1][1] < used[0][0] + 32
    assert used[-1][1] < idle + 128


@pytest.mark.parametrize("times", [200, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it collects what earlier tests left
async def test_row_15_a_process_that_opens_and_closes_caches_does_not_grow(
    server: Server, bus: Broker, times: int
) -> None:
    """Opening and closing directories leaves no object, no subscription and no memory behind in the process."""
    await fifty(bus)
    async with connect(server.url) as registry:

        async def opened(count: int) -> tuple[int, float]:
            for _ in range(count):
                async with registry.directory() as directory:
                    assert directory.state == "live"
            gc.collect()
            return len(gc.get_objects()), resident(psutil.Process().pid)

        await opened(100)  # until the allocator holds what it needs
        objects, memory = await opened(20)
        objects_after, memory_after = await opened(times)
        print(f"{times} directories: {objects_after - objects} objects, {memory_after - memory:.1f} MB more")
        assert objects_after - objects < times
        assert memory_after - memory < 16
        assert len(registry.broker._client._subs) == 2


@pytest.mark.parametrize("server", [STRICT], indirect=True, ids=["strict"])
async def test_a_cache_that_was_stopped_reads_anew_instead_of_lagging(server: Server, bus: Broker) -> None:
    """A process that stands still while thousands of changes go by is cut off by the server; once it goes on it
    shows what is true within seconds, and says that it is not live until then."""
    services = await fifty(bus)
    fresh, stopped = [await Watchers.start(server.url) for _ in range(2)]
    try:
        await asyncio.gather(fresh.ready(), stopped.ready())
        stopped.send(signal.SIGSTOP)
        for _ in range(60):
            await asyncio.gather(*(service.register() for service in services))
        newest = {service.key.id: service.revision for service in services}
        await until(fresh.look, lambda seen: seen["shown"] == newest, seconds=60)
        await until(lambda: "Slow Consumer" in (server.folder / "log").read_text(), seconds=30)
        stopped.send(signal.SIGCONT)
        began = time.monotonic()

        def right(seen: dict[str, object]) -> bool:
            live, newly = seen["states"] == ["live"], time.monotonic() - began < SETTLED
            assert not live or newly or seen["shown"] == newest, "live, and not what is true"
            return live and seen["shown"] == newest

        await until(stopped.look, right, seconds=40)
    finally:
        for one in (fresh, stopped):
            await one.kill()
