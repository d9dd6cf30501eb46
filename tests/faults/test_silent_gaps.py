"""No cache misses events silently: rows 10 and 11."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.clients import Directory, connect
from adsum.clients.directory import STALE_AFTER
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.streams import TOPOLOGY
from tests.daemons import Service, adsumd
from tests.faults.catalogs import present
from tests.making import key
from tests.projector.test_daemon import connected
from tests.proxy import Proxy, proxy_to
from tests.servers import Server
from tests.waiting import until

PINGS = 1.5
"""Seconds after which a client notices a connection that is dead: it pings each half second, two may be outstanding,
and then it has to connect."""
OVERTAKEN = 2.0
"""Seconds by which what is shown may be behind in any case here: a delay of the network, the time between two looks."""
BOUND = STALE_AFTER + PINGS + OVERTAKEN
"""Seconds that a cache may say `live` and show what is no longer true: the last proof, and how late it was heard."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A nats-server."""
    server = await Server(tmp_path / "server").start()
    yield server
    await server.stop()


class Watch:
    """Compares caches with the catalog all the time. `worst`: the longest that one was live and not right."""

    def __init__(self, catalog: Path, caches: list[Directory]) -> None:
        self._catalog, self._caches = catalog, caches
        self._right_at = dict.fromkeys(map(id, caches), time.monotonic())
        self._truths: list[tuple[float, dict[tuple[str, str], int]]] = []
        self.worst = 0.0
        self.looks = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(0.02)

    def look(self) -> None:
        """Compare once, with all that was true in the last moments."""
        now = time.monotonic()
        self._truths = [one for one in self._truths if now - one[0] <= OVERTAKEN] + [(now, present(self._catalog))]
        self.looks += 1
        for cache in self._caches:
            if cache.state != "live" or any(shown(cache) == seen_by(cache, truth) for _, truth in self._truths):
                self._right_at[id(cache)] = now
            self.worst = max(self.worst, now - self._right_at[id(cache)])


def shown(cache: Directory) -> dict[tuple[str, str], int]:
    """(service, id) -> revision of all it shows."""
    return {(instance.service, instance.id): instance.revision for instance in cache.instances()}


def seen_by(cache: Directory, truth: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """What of the truth it follows."""
    return {who: revision for who, revision in truth.items() if not cache.services or who[0] in cache.services}


async def churn(bus: Broker, chance: random.Random) -> None:
    """Instances of three services come, change and go, some dozen a second, until cancelled."""
    services = [Service(bus, key(f"i{n}", name), heartbeat=100, ttl=300) for name in ("a", "b", "c") for n in range(4)]
    here: set[int] = set()
    while True:
        number = chance.randrange(len(services))
        if number in here and chance.random() < 0.5:
            await services[number].deregister()
            here.discard(number)
        else:
            await services[number].register()
            here.add(number)
        await asyncio.sleep(chance.choice((0.0, 0.02, 0.1, 0.4)))


async def trouble(proxy: Proxy, chance: random.Random, longest: float) -> None:
    """One thing after the other happens to the network of a process, each for `longest` at most, until cancelled."""
    while True:
        match chance.randrange(5):
            case 0:
                proxy.drop()
            case 1:
                proxy.cut()
            case 2:
                proxy.blackhole("down")
            case 3:
                proxy.blackhole()
            case _:
                proxy.delay = {"up": chance.random() / 10, "down": chance.random() / 2}
        await asyncio.sleep(chance.choice((0.1, 0.5, 1.0, longest)))
        proxy.heal()
        await asyncio.sleep(chance.choice((0.0, 0.5, 2.0)))


async def purges(bus: Broker, chance: random.Random) -> None:
    """An administrator throws away states that caches read when they begin anew, until cancelled."""
    while True:
        await asyncio.sleep(chance.choice((1.0, 2.0)))
        some = subjects.topologies("default", chance.choice(("a", "b", "*")))
        await bus._js.purge_stream(TOPOLOGY, subject=some)


async def right(caches: list[Directory], catalog: Path) -> None:
    """Wait until each shows what the catalog holds, and a mark proved it after that."""

    async def one(cache: Directory) -> None:
        await until(lambda: shown(cache), lambda told: told == seen_by(cache, present(catalog)), seconds=40)
        since = asyncio.get_running_loop().time()
        await until(lambda: cache._census.proven_at, lambda at: at > since, seconds=40)
        await until(
            lambda: (cache.state, shown(cache)), lambda seen: seen == ("live", seen_by(cache, present(catalog)))
        )

    await asyncio.gather(*map(one, caches))


@pytest.mark.parametrize(
    ("seed", "seconds"), [(1, 5.0), *(pytest.param(seed, 60.0, marks=pytest.mark.long) for seed in range(2, 7))]
)
async def test_row_10_a_watch_misses_nothing_silently(
    tmp_path: Path, server: Server, seed: int, seconds: float
) -> None:
    """Through cut, deaf and slow networks, and states thrown away: a cache shows what the catalog holds, or says that
    it is not live; it is never live and wrong for longer than its proof lasts, and in the end all are right."""
    chance = random.Random(seed)
    catalog = tmp_path / "catalog.db"
    async with AsyncExitStack() as stack:
        daemon = adsumd(tmp_path / "data", "--nats", server.url, "--catalog", f"sqlite:///{catalog}")
        await stack.enter_async_context(daemon)
        bus = await connected(server.url)
        stack.push_async_callback(bus.close)
        proxies, caches = [], []
        for _ in range(3):
            proxies.append(await stack.enter_async_context(proxy_to(server.url)))
            registry = await stack.enter_async_context(connect(proxies[-1].url, ping=0.5))
            asked = (registry.directory("a"), registry.directory("b", "c"), registry.directory())
            caches += [await stack.enter_async_context(directory) for directory in asked]
        watch = Watch(catalog, caches)
        watching = asyncio.create_task(watch.run())
        changing = asyncio.create_task(churn(bus, random.Random(chance.random())))
        happening = [
            asyncio.create_task(trouble(proxy, random.Random(chance.random()), seconds / 3)) for proxy in proxies
        ]
        happening.append(asyncio.create_task(purges(bus, random.Random(chance.random()))))
        try:
            done, _ = await asyncio.wait([watching, changing, *happening], timeout=seconds)
            assert not done, done
        finally:
            for task in (changing, *happening):
                task.cancel()
            for proxy in proxies:
                proxy.heal()
        await right(caches, catalog)
        await right([await stack.enter_async_context(registry.directory())], catalog)
        assert not watching.done(), watching
        watching.cancel()
        print(f"seed {seed}: live and not right for {watch.worst:.2f} s at most, in {watch.looks} looks")
        assert watch.worst < BOUND


async def test_row_10_states_that_were_thrown_away_are_told_again(tmp_path: Path, server: Server) -> None:
    """An administrator purges the topology while nothing else happens: caches that are open go on showing everybody,
    and those that are opened afterwards come to show everybody too."""
    catalog = tmp_path / "catalog.db"
    async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", f"sqlite:///{catalog}"):
        bus = await connected(server.url)
        for id in ("a", "b", "c"):
            await Service(bus, key(id), heartbeat=100, ttl=300).register()
        async with connect(server.url) as registry, registry.directory() as before:
            await right([before], catalog)
            changes = before.changes(initial=False)
            await bus._js.purge_stream(TOPOLOGY)
            async with registry.directory() as after:
                await right([before, after], catalog)
            assert not changes._pending
        await bus.close()


@pytest.mark.parametrize("killed", [True, pytest.param(False, marks=pytest.mark.long)], ids=["killed", "paused"])
async def test_row_11_idle_caches_come_through_a_restart_of_the_broker(
    tmp_path: Path, server: Server, killed: bool
) -> None:
    """While the broker is away every cache answers with what it knew, says so, and its age grows; once it is back all
    are proven again within seconds, and hear of what is new."""
    catalog = tmp_path / "catalog.db"
    async with AsyncExitStack() as stack:
        daemon = adsumd(tmp_path / "data", "--nats", server.url, "--catalog", f"sqlite:///{catalog}")
        await stack.enter_async_context(daemon)
        bus = await connected(server.url)
        stack.push_async_callback(bus.close)
        await Service(bus, key("a"), heartbeat=100, ttl=300).register()
        registries = [await stack.enter_async_context(connect(server.url)) for _ in range(10)]
        asked = [registry.directory(*names) for registry in registries for names in ((), ("orders",), ("other",)) * 4]
        caches = list(await asyncio.gather(*map(stack.enter_async_context, asked)))
        await until(lambda: all(shown(cache) == seen_by(cache, present(catalog)) for cache in caches))
        if killed:
            await server.kill()
        else:
            server.pause()
        gone = time.monotonic()
        known, ages = [shown(cache) for cache in caches], [cache.age for cache in caches]
        while time.monotonic() - gone < (2 if killed else 30):
            assert [shown(cache) for cache in caches] == known
            older = [cache.age for cache in caches]
            assert all(0 <= before <= after for before, after in zip(ages, older, strict=True))
            ages = older
            await asyncio.sleep(0.2)
        assert {cache.state for cache in caches} == {"stale"}
        if killed:
            await server.start()
        else:
            server.go_on()
        back = time.monotonic()
        await bus.ready(20)
        await Service(bus, key("b"), heartbeat=100, ttl=300).register()
        await right(caches, catalog)
        print(f"{len(caches)} caches proven {time.monotonic() - back:.1f} s after the broker came back")
