"""The catalog is lost and made again from the log: nobody's cache is emptied by it (row 13)."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from adsum.clients import Directory, Registration, connect
from adsum.events.streams import EVENTS
from tests.daemons import Service, adsumd
from tests.databases import PostgresServer
from tests.making import key
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until

LIVING = 20
QUIET = 200


class Smallest:
    """Looks at caches all the time and remembers whom any of them ever missed, from the moment it was loaded."""

    def __init__(self, wanted: set[str]) -> None:
        self.wanted, self.caches, self.looks = wanted, list[Directory](), 0
        self.missed: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            for cache in self.caches:
                if cache.state != "loading":
                    self.looks += 1
                    self.missed |= self.wanted - {instance.id for instance in cache.instances()}
            await asyncio.sleep(0.005)


async def go_on(owners: list[Registration], chance: random.Random) -> None:
    """Owners change what they say, one after the other, until cancelled."""
    while True:
        await chance.choice(owners).update(weight=chance.random())


def nothing_at(file: Path) -> str:
    """The DSN of a catalog with nothing in it, where one was."""
    for part in file.parent.glob(f"{file.name}*"):
        part.unlink()
    return f"sqlite:///{file}"


async def nothing_in(server: PostgresServer, stack: AsyncExitStack) -> str:
    """The DSN of a database with nothing in it."""
    name = await server.create()
    stack.push_async_callback(server.drop, name)
    return server.dsn(name)


def weights(cache: Directory) -> dict[str, float]:
    """What those say who go on changing."""
    return {one.id: one.weight for one in cache.instances() if one.id.startswith("l")}


@pytest.mark.parametrize(
    ("dialect", "times"),
    [("sqlite", 4), *(pytest.param(one, 50, marks=pytest.mark.long) for one in ("sqlite", "postgresql"))],
)
async def test_row_13_a_rebuild_from_zero_empties_no_cache(
    request: pytest.FixtureRequest, tmp_path: Path, dialect: str, times: int
) -> None:
    """The catalog is deleted and folded again from thousands of events while services go on: no cache, open all the
    while or opened meanwhile, ever misses one of those who are there, and the rebuilt catalog is told of as it is."""
    postgres = request.getfixturevalue("postgres_server") if dialect == "postgresql" else None
    server = await Server(tmp_path / "server").start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        bus = await connected(server.url)
        stack.push_async_callback(bus.close)
        registry = await stack.enter_async_context(connect(server.url))
        living = [registry.register("orders", id=f"l{n}", port=1, ttl=300, heartbeat=1) for n in range(LIVING)]
        quiet = [Service(bus, key(f"q{n}"), heartbeat=100, ttl=300) for n in range(QUIET)]
        wanted = {f"l{n}" for n in range(LIVING)} | {service.key.id for service in quiet}
        watching, going = Smallest(wanted), list[asyncio.Task[None]]()
        dsn = await nothing_in(postgres, stack) if postgres else nothing_at(tmp_path / "catalog.db")
        async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", dsn):
            owners = [await stack.enter_async_context(owner) for owner in living]
            for _ in range(times):  # the log grows to thousands of words
                await asyncio.gather(*(service.register() for service in quiet))
            for _ in range(3):
                cache = await stack.enter_async_context(registry.directory())
                await until(lambda: {one.id for one in cache.instances()}, wanted.__eq__, seconds=60)  # noqa: B023
                watching.caches.append(cache)
            going = [asyncio.create_task(watching.run()), asyncio.create_task(go_on(owners, random.Random(1)))]
            stack.callback(lambda: [task.cancel() for task in going])
        dsn = await nothing_in(postgres, stack) if postgres else nothing_at(tmp_path / "catalog.db")
        starting = asyncio.create_task(meanwhile(registry.directory, watching, stack))
        async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", dsn):
            info = await bus.stream_info(EVENTS)
            assert info is not None
            assert info.state.last_seq > times * QUIET
            since = asyncio.get_running_loop().time()
            await starting
            await until(lambda: min(one._census.proven_at for one in watching.caches), lambda at: at > since, 40)
            going[1].cancel()
            await asyncio.wait([going[1]])
            newest = {owner.id: owner.description.weight for owner in owners}
            for cache in watching.caches:
                await until(partial(weights, cache), newest.__eq__)
        assert not going[0].done(), going[0]
        print(f"{info.state.last_seq} events folded anew, {len(watching.caches)} caches, {watching.looks} looks")
        assert watching.missed == set()


async def meanwhile(directory: object, watching: Smallest, stack: AsyncExitStack) -> None:
    """Caches that begin while nobody leads, while the log is folded, and while the leader begins to tell."""
    for _ in range(12):
        cache = await stack.enter_async_context(directory())  # type: ignore[operator]
        watching.caches.append(cache)
        await asyncio.sleep(0.25)
