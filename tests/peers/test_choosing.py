"""Choosing over a real directory: it follows what is registered, and tells nobody from not yet known."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from adsum.clients import (
    NoneRegistered,
    NoneRoutable,
    NotLoaded,
    Picked,
    Registry,
    Selection,
    WeightedRoundRobin,
)
from adsum.events.errors import InvalidValue
from tests.waiting import until


def members(selection: Selection) -> set[str]:
    """The ids of those who can be called."""
    return {picked.instance.id for picked in selection.members}


async def test_a_selection_follows_what_is_registered(registry: Registry) -> None:
    """Who joins is picked, who drains or is ill or weighs nothing is not, who changes is as it is now."""
    async with registry.directory("orders") as orders, AsyncExitStack() as stack:
        selection = orders.select(version=">=1,<2")
        with pytest.raises(NoneRegistered, match="default/orders"):
            selection.pick()
        a, b, c = [
            await stack.enter_async_context(registry.register("orders", id=id, port=port, version="1.2", zone="eu"))
            for port, id in enumerate(("a", "b", "c"), start=8001)
        ]
        await until(lambda: members(selection), {"a", "b", "c"}.__eq__)
        assert Counter(selection.pick().endpoint.port for _ in range(9)) == {8001: 3, 8002: 3, 8003: 3}
        await a.drain("new version")
        await b.health("critical", "disk full")
        await until(lambda: members(selection), {"c"}.__eq__)
        await c.update(version="2.0")
        await until(lambda: members(selection), set().__eq__)
        with pytest.raises(NoneRoutable) as caught:
            selection.pick()
        assert caught.value.reasons == {"not of version '>=1,<2'": 1, "draining": 1, "critical": 1}
        await b.health("passing")
        await c.update(version="1.3", weight=3.0)
        weighted = orders.select("orders", policy=WeightedRoundRobin(), zone="eu", protocol="http")
        await until(lambda: members(weighted), {"b", "c"}.__eq__)
        await until(lambda: members(selection), {"b", "c"}.__eq__)
        assert Counter(weighted.pick().instance.id for _ in range(8)) == {"b": 2, "c": 6}
        assert weighted.pick().instance.version in ("1.2", "1.3")


async def test_nothing_is_picked_before_anything_is_known(registry: Registry) -> None:
    """Unknown is not nobody. A service that is not followed is refused at once, and a capability crosses services."""
    async with (
        registry.register("orders", port=8001, capabilities=["Payments"]),
        registry.register("refunds", port=8002, capabilities=["Payments"]),
        registry.register("search", port=8003),
        registry.directory("orders", wait=0) as orders,
        registry.directory(capability="Payments") as payments,
    ):
        early, able = orders.select(), payments.select()
        if orders.state == "loading":  # it has just begun: nothing was awaited since
            with pytest.raises(NotLoaded, match="default/orders"):
                early.pick()
        assert await orders.loaded(10)
        await until(lambda: len(early.members), (1).__eq__)
        with pytest.raises(InvalidValue, match="search"):
            orders.select("search")
        await until(lambda: {picked.instance.service for picked in able.members}, {"orders", "refunds"}.__eq__)
        with pytest.raises(NoneRegistered, match=r"\* with Payments|search"):
            payments.select("search").pick()


async def test_a_peer_that_does_not_answer_is_left_out_until_it_does(registry: Registry) -> None:
    """Two real listeners of which one is shut: after five calls in vain the other one has all, in every selection."""
    async with AsyncExitStack() as stack:
        servers = [await asyncio.start_server(_answer, "127.0.0.1", 0) for _ in range(2)]
        for server in servers:
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
            await stack.enter_async_context(registry.register("orders", port=port, host="127.0.0.1"))
        orders = await stack.enter_async_context(registry.directory("orders"))
        selection = orders.select()
        await until(lambda: len(selection.members), (2).__eq__)
        servers[0].close()
        await servers[0].wait_closed()
        told = Counter([await _call(selection, selection.pick()) for _ in range(30)])
        assert told == {"failed": 5, "answered": 25}
        assert [picked.endpoint.port for picked in orders.select().members] == [servers[1].sockets[0].getsockname()[1]]
        tried = [selection.pick()]
        with pytest.raises(NoneRoutable, match=r"1 ejected, 1 tried already"):
            selection.pick(avoid=tried)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"here\n")
    writer.close()
    await writer.wait_closed()


async def _call(selection: Selection, picked: Picked) -> str:
    try:
        with selection.calling(picked, OSError):
            reader, writer = await asyncio.open_connection(picked.endpoint.host, picked.endpoint.port)
            assert await reader.readline() == b"here\n"
            writer.close()
            await writer.wait_closed()
    except OSError:
        return "failed"
    return "answered"
