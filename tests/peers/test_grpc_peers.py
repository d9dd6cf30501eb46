"""Calls over gRPC and Flight by way of `Registry.peers`: a real adsumd, servers that are killed and taken over."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2
from pyarrow import flight as library

from adsum.clients import (
    FLIGHT_ACTION,
    GRPC_HEALTH,
    Peer,
    Peers,
    PickFirst,
    Registry,
    Unreachable,
    flight,
    grpc,
)
from tests.making import key
from tests.peers.callee import callee
from tests.peers.flight_callee import Server
from tests.peers.grpc_callee import path, serving
from tests.waiting import until


async def register(stack: AsyncExitStack, registry: Registry, health: str, **ports: int) -> None:
    """Register who listens at these ports, by id."""
    for id, port in ports.items():
        said = {"health.main": health}
        one = registry.register("orders", id=id, host="127.0.0.1", port=port, protocol="grpc", metadata=said)
        await stack.enter_async_context(one)


async def known(peers: Peers[Any], *ids: str) -> None:
    """Wait until so many can be called."""
    await until(lambda: {picked.instance.id for picked in peers.selection.members}, set(ids).__eq__, 20)


async def echo(peer: Peer[aio.Channel]) -> str:
    """Who answered."""
    await peer.connection.unary_unary(path("echo"))(b"hello", timeout=peer.timeout)
    return peer.instance.id


async def act(peer: Peer[Any]) -> str:
    """Who answered, over Flight."""
    await peer.connection.do_action("echo", timeout=peer.timeout)
    return peer.instance.id


async def test_who_is_killed_in_the_middle_of_a_call(registry: Registry) -> None:
    """What may be done twice is done by the other one; what may not comes out as gRPC said it."""
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(callee("tests.peers.grpc_callee", "default/orders/a"))
        b = await stack.enter_async_context(serving(key("b")))
        await register(stack, registry, GRPC_HEALTH, a=a.port, b=b.port)
        peers = await stack.enter_async_context(registry.peers("orders", dial=grpc(), policy=PickFirst(), verify=True))
        await known(peers, "a", "b")

        async def hang_at_a(peer: Peer[aio.Channel]) -> str:
            if peer.instance.id == "a":
                await peer.connection.unary_unary(path("hang"))(b"", timeout=peer.timeout)
            return await echo(peer)

        once = asyncio.ensure_future(peers.call(hang_at_a, timeout=60))
        twice = asyncio.ensure_future(peers.call(hang_at_a, timeout=60, idempotent=True))
        await until(lambda: a.printed("called hang") == 2)
        await a.kill()
        with pytest.raises(aio.AioRpcError) as raised:
            await once
        assert raised.value.code() is StatusCode.UNAVAILABLE
        assert await twice == "b"
        assert await peers.call(echo, timeout=30) == "b"


async def test_an_address_that_was_taken_over_is_not_called(registry: Registry) -> None:
    """At the first dial, and where a connection was kept; the next one in the list is."""
    async with AsyncExitStack() as stack:
        b = await stack.enter_async_context(serving(key("b")))
        first = await stack.enter_async_context(AsyncExitStack())
        a = await first.enter_async_context(serving(key("a")))
        await register(stack, registry, GRPC_HEALTH, a=a.port, b=b.port)
        peers = await stack.enter_async_context(registry.peers("orders", dial=grpc(), policy=PickFirst(), verify=True))
        await known(peers, "a", "b")
        assert await peers.call(echo, timeout=30) == "a"
        await first.aclose()
        other = await stack.enter_async_context(serving(key("b-1", "billing"), port=a.port))
        assert await peers.call(echo, timeout=30) == "b"
        async with registry.peers("orders", dial=grpc(), policy=PickFirst(), verify=True) as anew:
            await known(anew, "a", "b")
            assert await anew.call(echo, timeout=30) == "b"
            await b.server.stop(None)
            with pytest.raises(Unreachable) as raised:
                await anew.call(echo, timeout=30)
        told = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
        assert "'default/billing/b-1' answers" in told
        assert other.asked == []


async def test_who_says_that_it_does_not_serve_is_passed_over(registry: Registry) -> None:
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(serving(key("a")))
        b = await stack.enter_async_context(serving(key("b")))
        await register(stack, registry, GRPC_HEALTH, a=a.port, b=b.port)
        await a.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        peers = await stack.enter_async_context(registry.peers("orders", dial=grpc(), policy=PickFirst(), verify=True))
        await known(peers, "a", "b")
        assert await peers.call(echo, timeout=30) == "b"
        assert a.asked == []


async def test_a_server_that_stops_politely_costs_no_call(registry: Registry) -> None:
    """It is stopped while many call it, and may not be called twice: what it took it finishes."""
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(serving(key("a")))
        b = await stack.enter_async_context(serving(key("b")))
        await register(stack, registry, GRPC_HEALTH, a=a.port, b=b.port)
        peers = await stack.enter_async_context(registry.peers("orders", dial=grpc(), policy=PickFirst()))
        await known(peers, "a", "b")

        async def wait(peer: Peer[aio.Channel]) -> str:
            await peer.connection.unary_unary(path("wait"))(b"0.5", timeout=peer.timeout)
            return peer.instance.id

        calls = [asyncio.ensure_future(peers.call(wait, timeout=60)) for _ in range(10)]
        await until(lambda: len(a.asked) == 10)
        stopping = asyncio.ensure_future(a.server.stop(30))
        assert await asyncio.gather(*calls) == ["a"] * 10
        await stopping
        assert await peers.call(echo, timeout=30) == "b"


async def test_flight_verified_killed_and_taken_over(registry: Registry) -> None:
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(callee("tests.peers.flight_callee", "default/orders/a"))
        b = stack.enter_context(Server("default/orders/b"))
        await register(stack, registry, FLIGHT_ACTION, a=a.port, b=b.port)
        peers = await stack.enter_async_context(
            registry.peers("orders", dial=flight(), policy=PickFirst(), verify=True)
        )
        await known(peers, "a", "b")
        assert await peers.call(act, timeout=30) == "a"

        async def hang_at_a(peer: Peer[Any]) -> str:
            if peer.instance.id == "a":
                await peer.connection.do_action("hang", b"60", timeout=peer.timeout)
            return await act(peer)

        once = asyncio.ensure_future(peers.call(hang_at_a, timeout=60))
        twice = asyncio.ensure_future(peers.call(hang_at_a, timeout=60, idempotent=True))
        await until(lambda: a.printed("called hang") == 2)
        await a.kill()
        with pytest.raises(library.FlightUnavailableError):
            await once
        assert await twice == "b"
        with Server("default/billing/b-1", a.port) as other:
            for _ in range(2):
                assert await peers.call(act, timeout=30) == "b"
            assert set(other.asked) <= {"adsum-instance"}
