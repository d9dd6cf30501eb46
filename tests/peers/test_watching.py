"""Watching a service: the whole list, only when it differs, and never one that is not known to be whole."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from adsum.clients import Leases, Registry, connect
from adsum.events.broker import Broker
from adsum.events.ids import new_id
from adsum.events.lifecycle import ModeChanged
from adsum.events.signals import Instance
from adsum.projector.embedded import EmbeddedBroker
from tests.clients.test_outage import restarted
from tests.daemons import adsumd
from tests.making import OWNER
from tests.waiting import until

from .leasing import HERE, leases, registry, say_next

__all__ = ["leases", "registry"]


async def test_a_watch_gives_the_whole_list_when_it_differs(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, registry: Registry, leases: Leases
) -> None:
    """First as it is, also empty; a change of what nobody sees is none; who is silent for a TTL leaves it."""
    async with adsumd(tmp_path / "data", "--nats", nats.url):
        watch = leases.watch("orders")
        lists = aiter(watch)
        assert await listed(lists) == []
        assert watch.state == "live"
        first = await leases.register("orders", HERE, id="o-1", ttl=60)
        assert await listed(lists) == ["o-1 127.0.0.1:8080 1"]
        await leases.register("other", HERE, id="x-1", ttl=60)
        await leases.register("orders", "127.0.0.1:8082", id="o-3", ttl=1.5)
        await leases.register("orders", "127.0.0.1:8081", id="o-2", ttl=60, weight=2)
        while (seen := await listed(lists)) != (
            ["o-1 127.0.0.1:8080 1", "o-2 127.0.0.1:8081 2", "o-3 127.0.0.1:8082 1"]
        ):
            assert len(seen) == 2
        for mode in ("draining", "serving"):  # there and back before it is looked at
            last = await say_next(broker, ModeChanged(id=new_id(), term=first.term, by=OWNER, mode=mode))
        await until(lambda: watch._directory.get("orders", "o-1"), lambda one: one is not None and one.revision == last)
        assert await listed(lists) == ["o-1 127.0.0.1:8080 1", "o-2 127.0.0.1:8081 2"], "o-3 is stale"
        await leases.deregister(first)
        assert await listed(lists) == ["o-2 127.0.0.1:8081 2"]


async def listed(lists: AsyncIterator[tuple[Instance, ...]]) -> list[str]:
    """The next list."""
    async with asyncio.timeout(30):
        return [f"{one.id} {one.endpoint.address} {one.weight:g}" for one in await anext(lists)]


async def test_a_watch_tells_an_outage_from_nobody(
    tmp_path: Path, nats: EmbeddedBroker, registry: Registry, leases: Leases
) -> None:
    """While the broker is away the last list stands, and `state` says so; before the first one nothing comes."""
    async with adsumd(tmp_path / "data", "--nats", nats.url):
        await leases.register("orders", HERE, id="o-1", ttl=60)
        watch = leases.watch("orders")
        while not await listed(watch):
            pass
        await nats.stop()
        await until(lambda: watch.state, "stale".__eq__)
        early = leases.watch("orders")
        waiting = [asyncio.ensure_future(listed(one)) for one in (watch, early)]
        await until(lambda: early._directory._outage.lasted > 1)
        assert (watch.state, early.state) == ("stale", "loading")
        again = await restarted(nats, tmp_path)
        try:
            assert await waiting[1] == ["o-1 127.0.0.1:8080 1"]
            await leases.register("orders", "127.0.0.1:8081", id="o-2", ttl=60)
            assert await waiting[0] == ["o-1 127.0.0.1:8080 1", "o-2 127.0.0.1:8081 1"]
        finally:
            await again.stop()


async def test_a_watch_ends_with_its_reader_and_with_the_registry(nats: EmbeddedBroker, broker: Broker) -> None:
    """No task of it stays behind."""

    def following() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if "directory of default/orders" in task.get_name()]

    async with connect(nats.url) as registry:
        await registry.broker.ready(10)
        async for instances in registry.leases().watch("orders"):
            assert instances == ()
            assert following()
            break
        gc.collect()
        await until(following, [].__eq__)
        watch = registry.leases().watch("orders")
        assert await anext(watch) == ()
        waiting = asyncio.ensure_future(collected(watch))
        await until(following)
    assert await asyncio.wait_for(waiting, 10) == []
    assert following() == []


async def collected(lists: AsyncIterator[tuple[Instance, ...]]) -> list[tuple[Instance, ...]]:
    """All that still come."""
    return [one async for one in lists]


async def test_what_a_directory_dies_of_comes_out_of_the_watch(
    registry: Registry, leases: Leases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug of ours is no quiet end."""

    def broken(*_: object) -> Awaitable[str]:
        raise RuntimeError("a bug")

    monkeypatch.setattr("adsum.clients.loading.Loading.epoch", broken)
    with pytest.raises(ExceptionGroup, match="unhandled"):
        await anext(leases.watch("orders"))
