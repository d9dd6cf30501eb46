"""A broker of three nodes, replicated streams, two adsumd: nodes that die, stand still, or go one after the other."""

from __future__ import annotations

import asyncio
import itertools
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from adsum.clients import Directory, Registration, connect
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.errors import BrokerUnavailable
from adsum.events.log import Outrun
from adsum.events.names import Key
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY
from tests.cluster import ELECTIONS, Node, cluster, jetstream_answers
from tests.daemons import Service, adsumd
from tests.making import key
from tests.observing import an_instance_dies, check_catalog, fleet, refold, verdicts_on
from tests.waiting import until

TTL = 15.0
"""The least that the README allows in a cluster."""
EACH = 3
"""Instances that are connected to each node."""


class Setting:
    """A cluster with all that runs on it, and what was acknowledged to the test while it ran."""

    def __init__(self, nodes: list[Node], bus: Broker) -> None:
        self.nodes, self.bus = nodes, bus
        self.acknowledged: list[str] = []

    async def leader_of(self, stream: str) -> Node:
        """The node that leads a stream."""

        async def look() -> str | None:
            try:
                info = await self.bus.stream_info(stream)
            except BrokerUnavailable:
                return None
            return info.cluster.leader if info is not None and info.cluster is not None else None

        return self.nodes[int((await until(look, seconds=ELECTIONS)).removeprefix("n"))]

    async def acknowledge_more(self, count: int = 20) -> None:
        """Wait until so many more registrations were acknowledged."""
        before = len(self.acknowledged)
        await until(lambda: len(self.acknowledged) - before, lambda more: more >= count, seconds=ELECTIONS)

    async def whole(self) -> None:
        """Wait until every replica of every stream is there and current."""

        async def lagging() -> list[str]:
            try:
                infos = [await self.bus.stream_info(name) for name in (EVENTS, BEATS, TOPOLOGY)]
            except BrokerUnavailable as error:
                return [str(error)]
            peers = [peer for info in infos if info and info.cluster for peer in info.cluster.replicas or []]
            return [str(peer) for peer in peers if not peer.current or peer.offline] or ["no peers"] * (not peers)

        await until(lagging, lambda found: not found, seconds=ELECTIONS)


@asynccontextmanager
async def instances(nodes: list[Node]) -> AsyncIterator[list[Registration]]:
    """Instances that live, some of them connected to each node, which tells them of the others."""
    async with AsyncExitStack() as stack:
        orders: list[Registration] = []
        for node in nodes:
            registry = await stack.enter_async_context(connect(node.url))
            here = fleet(registry, EACH, heartbeat=5, ttl=TTL, first=len(orders))
            orders += await stack.enter_async_context(here)
        yield orders


@asynccontextmanager
async def load(setting: Setting, orders: list[Registration]) -> AsyncIterator[None]:
    """Registrations one after the other, and an update of each of `orders` in turn, while the block runs."""

    async def come() -> None:
        for n in itertools.count():
            service = Service(setting.bus, key(f"l-{n}", "load"), heartbeat=60, ttl=600)
            with suppress(BrokerUnavailable, Outrun):  # not acknowledged: it may be in the log or not
                await service.register()
                setting.acknowledged.append(service.term)
            await asyncio.sleep(0.05)

    async def update() -> None:
        for weight in itertools.count(2):
            for me in orders:
                await me.update(weight=float(weight))
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(come()), asyncio.create_task(update())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, asyncio.CancelledError) for error in ended), ended


async def leader_killed(setting: Setting) -> None:
    """The node that leads the log dies, and comes back later."""
    node = await setting.leader_of(EVENTS)
    await node.stop(signal.SIGKILL)
    await setting.acknowledge_more()
    await node.start()


async def leader_paused(setting: Setting) -> None:
    """The node that leads the heartbeats stands still for five TTLs, its connections open."""
    node = await setting.leader_of(BEATS)
    node.signal(signal.SIGSTOP)
    await setting.acknowledge_more()
    await asyncio.sleep(5 * TTL)  # the pause itself
    node.signal(signal.SIGCONT)


async def quorum_lost(setting: Setting) -> None:
    """Two nodes die, and nothing can be said for longer than an instance may be silent."""
    leader = await setting.leader_of(EVENTS)
    down = [leader, next(node for node in setting.nodes if node is not leader)]
    for node in down:
        await node.stop(signal.SIGKILL)
    before = len(setting.acknowledged)
    await asyncio.sleep(2 * TTL + 5)  # the outage itself
    assert len(setting.acknowledged) <= before + 1  # one may have been acknowledged while they died
    for node in down:
        await node.start()


async def rolling_restart(setting: Setting) -> None:
    """Each node is stopped and started again, the next one once the cluster is whole."""
    for node in setting.nodes:
        await node.stop()
        await setting.acknowledge_more()
        await node.start()
        await setting.whole()


LONG = (leader_paused, quorum_lost, rolling_restart)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", [leader_killed, *(pytest.param(fault, marks=pytest.mark.long) for fault in LONG)])
async def test_row_05_a_cluster_in_trouble_loses_no_word_and_buries_nobody(
    tmp_path: Path, fault: Callable[[Setting], Awaitable[None]]
) -> None:
    """Each acknowledged event is in the log once, both catalogs and the cache are what it folds to, the living live."""
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(cluster(tmp_path, advertise=True))
        urls = ",".join(node.url for node in nodes)
        bus = Broker.open(BrokerSettings(url=urls), "test")
        stack.push_async_callback(bus.close)
        await bus.ready(10)
        setting = Setting(nodes, bus)
        await jetstream_answers(bus)
        catalogs = [f"sqlite:///{tmp_path / name}.db" for name in ("one", "two")]
        daemons = [
            await stack.enter_async_context(
                adsumd(tmp_path / f"data-{n}", "--nats", urls, "--replicas", "3", "--catalog", catalog)
            )
            for n, catalog in enumerate(catalogs)
        ]
        assert await storages(bus) == {EVENTS: (3, "file"), BEATS: (3, "memory"), TOPOLOGY: (3, "file")}
        async with instances(nodes) as orders, connect(urls) as registry, registry.directory() as directory:
            async with load(setting, orders):
                await setting.acknowledge_more()
                await fault(setting)
                await setting.acknowledge_more()
            await setting.whole()
            await an_instance_dies(bus, "in-the-end", ttl=1)
            assert await verdicts_on(bus, "orders") == []
            await until(lambda: differences(bus, directory), lambda differ: differ == {}, seconds=ELECTIONS)
            assert weights(directory) == {me.id: me.description.weight for me in orders}
        for daemon, catalog in zip(daemons, catalogs, strict=True):
            await until(lambda catalog=catalog: unfolded(bus, catalog), lambda left: left == 0, seconds=ELECTIONS)
            await daemon.stop()
        for catalog in catalogs:
            await check_catalog(bus, catalog, setting.acknowledged)


async def differences(bus: Broker, directory: Directory) -> dict[Key, tuple[int | None, int | None]]:
    """Where a cache and the log differ: (revision in the cache, in the log)."""
    folded = {of: record.revision for of, record in (await refold(bus)).changed.items() if record is not None}
    cached = {instance.key: instance.revision for instance in directory.instances()}
    return {of: (cached.get(of), folded.get(of)) for of in cached | folded if cached.get(of) != folded.get(of)}


def weights(directory: Directory) -> dict[str, float]:
    """What a cache says of those that described themselves anew."""
    return {instance.id: instance.weight for instance in directory.instances("orders")}


async def unfolded(bus: Broker, catalog: str) -> int:
    """How many events of the log a catalog has yet to fold."""
    info = await bus.stream_info(EVENTS)
    assert info is not None
    with closing(sqlite3.connect(catalog.removeprefix("sqlite:///"))) as reading:
        [(sequence,)] = reading.execute("SELECT sequence FROM checkpoint")
    return info.state.last_seq - int(sequence)


async def storages(bus: Broker) -> dict[str, tuple[int | None, str]]:
    """(replicas, storage) of each stream."""
    infos = {name: await bus.stream_info(name) for name in (EVENTS, BEATS, TOPOLOGY)}
    return {name: (info.config.num_replicas, str(info.config.storage)) for name, info in infos.items() if info}
