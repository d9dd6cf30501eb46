"""Thousands of registrations of one process at once, whose broker, or one node of three, is killed in the middle."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from adsum.clients import Directory, Registration, Registrations, connect
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, Event, Registered
from adsum.events.log import last_word, say
from adsum.events.names import Key
from adsum.events.streams import EVENTS
from tests.cluster import ELECTIONS, cluster, jetstream_answers
from tests.daemons import adsumd
from tests.making import OPERATOR, key, registered
from tests.observing import said_of
from tests.servers import Server
from tests.waiting import until

SIZE = 3_000
CACHES = 3
SOON = 60.0
ON_DISK = 'jetstream {{ store_dir: "{}", sync_interval: always }}'


@asynccontextmanager
async def many(url: str, size: int) -> AsyncIterator[Registrations]:
    """So many instances of a process, on their way."""
    async with connect(url, name="a gateway") as registry:
        await registry.broker.ready(10)
        owned = [
            registry.register("orders", id=f"o-{n}", host="10.0.0.1", port=1 + n, heartbeat=10, ttl=60)
            for n in range(size)
        ]
        async with registry.register_many(owned, wait=0) as orders:
            yield orders


async def some_but_not_all(orders: Registrations) -> Registration:
    """Wait until the burst is in its middle; one that is registered."""
    await until(lambda: any(one.state == "registered" for one in orders), seconds=SOON)
    assert any(one.state == "registering" for one in orders)
    return next(one for one in orders if one.state == "registered")


async def histories(bus: Broker) -> dict[Key, list[Event]]:
    """What the log says of each."""
    found: dict[Key, list[Event]] = {}
    for of, event in await said_of(bus, "orders"):
        found.setdefault(of, []).append(event)
    return found


async def agree(caches: Sequence[Directory], wanted: dict[str, str]) -> None:
    """Wait until every cache is proven and shows these, ids with their terms."""
    for cache in caches:
        await until(lambda cache=cache: {one.id: one.term for one in cache.instances()} == wanted, seconds=SOON)  # type: ignore[misc]
        await until(lambda cache=cache: cache.state, "live".__eq__, seconds=SOON)  # type: ignore[misc]


@asynccontextmanager
async def caching(url: str) -> AsyncIterator[list[Directory]]:
    """Caches of processes of their own."""
    async with AsyncExitStack() as stack:
        registries = [await stack.enter_async_context(connect(url)) for _ in range(CACHES)]
        yield [await stack.enter_async_context(one.directory("orders", wait=30)) for one in registries]


async def test_the_broker_is_killed_in_the_middle_of_it(tmp_path: Path) -> None:
    """One id is taken before and one is removed by an operator meanwhile: each ends registered once, or as told."""
    server = await Server(tmp_path / "nats", ON_DISK.format(tmp_path / "store"), jetstream=False).start()
    bus = Broker.open(BrokerSettings(url=server.url), "test")
    try:
        await bus.ready(10)
        async with adsumd(tmp_path / "data", "--nats", server.url), caching(server.url) as caches:
            rival = registered()
            await say(bus, key("o-7"), rival, 0)
            async with many(server.url, SIZE) as orders:
                removed = await some_but_not_all(orders)
                await server.kill()
                await server.start()
                await until(lambda: bus.connected)
                word = await until(lambda: last_word(bus, removed.key))
                assert word is not None
                farewell = Deregistered(id=new_id(), term=removed.term, by=OPERATOR)
                await say(bus, removed.key, farewell, word.sequence)
                wanted = {"registered": SIZE - 1, "removed": 1}
                await until(lambda: Counter(one.state for one in orders), wanted.__eq__, seconds=SOON)
                said = await histories(bus)
                assert [type(event) for event in said.pop(removed.key)] == [Registered, Deregistered]
                assert [event.id == rival.id for event in said.pop(key("o-7"))] == [True, False]
                assert {tuple(map(type, events)) for events in said.values()} == {(Registered,)}
                assert len(said) == SIZE - 2
                await agree(caches, {one.id: one.term for one in orders if one is not removed})
            await agree(caches, {})
    finally:
        await bus.close()
        await server.stop()


@pytest.mark.long
@pytest.mark.parametrize("size", [1_000, 20_000])
async def test_the_leader_of_a_cluster_is_killed_in_the_middle_of_it(tmp_path: Path, size: int) -> None:
    """Batches are replicated like single words: nothing is said twice, nothing is lost."""
    async with cluster(tmp_path, advertise=True) as nodes:
        bus = Broker.open(BrokerSettings(url=",".join(node.url for node in nodes)), "test", ping=0.5)
        try:
            await bus.ready(10)
            await jetstream_answers(bus)
            async with adsumd(tmp_path / "data", "--nats", bus.settings.url, "--replicas", "3"):
                info = await bus.stream_info(EVENTS)
                assert info is not None
                assert info.cluster is not None
                leader = nodes[int(str(info.cluster.leader).removeprefix("n"))]
                async with many(bus.settings.url, size) as orders:
                    await until(lambda: any(one.state == "registered" for one in orders), seconds=ELECTIONS)
                    await leader.stop(signal.SIGKILL)
                    await orders.registered(2 * ELECTIONS)
                    said = await until(lambda: histories(bus), lambda said: len(said) == size, seconds=ELECTIONS)
                    assert {tuple(map(type, events)) for events in said.values()} == {(Registered,)}
                    assert {of.id: events[0].term for of, events in said.items()} == {
                        one.id: one.term for one in orders
                    }
                    await asyncio.wait_for(leader.start(), 10)
        finally:
            await bus.close()
