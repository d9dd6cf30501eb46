"""A gRPC server to be called, in a process of its own or in this one: `python -m tests.peers.grpc_callee PORT KEY`.

It answers the methods of `METHODS` and gRPC's health, as the instance KEY, and prints a line for each call. SIGTERM has
it stop politely: it takes no more calls, finishes those under way and ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from grpc import StatusCode, aio

from adsum.clients.peers import Dialer
from adsum.clients.peers.grpc_dialer import PUSHBACK
from adsum.clients.peers.grpc_health import add_health
from adsum.events.description import Endpoint
from adsum.events.names import Key
from adsum.events.signals import Instance

SERVICE = "tests.Echo"


def path(method: str) -> str:
    """The path of one of our methods."""
    return f"/{SERVICE}/{method}"


@dataclass
class GrpcServer:
    """A server in this process: where it listens, what it was asked, and its health."""

    server: aio.Server
    port: int
    health: Any
    asked: list[str] = field(default_factory=list)


@asynccontextmanager
async def serving(
    key: Key, port: int = 0, limit: int | None = None, credentials: grpc.ServerCredentials | None = None, **more: Any
) -> AsyncIterator[GrpcServer]:
    """A server for as long as the block lasts; `limit`: calls that it takes at once."""
    server = aio.server(maximum_concurrent_rpcs=limit, options=[("grpc.so_reuseport", 0)], **more)
    asked: list[str] = []
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods(asked.append)),))
    health = add_health(server, key)
    address = f"127.0.0.1:{port}"
    at = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    await server.start()
    try:
        yield GrpcServer(server, at, health, asked)
    finally:
        await server.stop(None)


def methods(heard: Any) -> dict[str, Any]:
    """What the server can; `heard` is told each call."""

    async def echo(request: bytes, context: Any) -> bytes:
        heard("echo")
        return request

    async def hang(request: bytes, context: Any) -> bytes:
        heard("hang")
        await asyncio.Event().wait()
        return request

    async def wait(request: bytes, context: Any) -> bytes:
        heard("wait")
        await asyncio.sleep(float(request))  # as long as the caller asks for
        return request

    async def refuse(request: bytes, context: Any) -> bytes:
        """Refuse with the code in the request; "push" behind it: and ask for another try."""
        heard("refuse")
        code, _, push = request.decode().partition(" ")
        pushed = ((PUSHBACK, push),) if push else ()
        await context.abort(StatusCode[code], "so it is", pushed)
        return b""

    async def tell(request: bytes, context: Any) -> bytes:
        """Refuse with the code and the words in the request."""
        heard("tell")
        code, _, words = request.decode().partition(" ")
        await context.abort(StatusCode[code], words)
        return b""

    async def count(request: bytes, context: Any) -> AsyncIterator[bytes]:
        heard("count")
        for number in range(int(request)):
            yield b"%d" % number

    async def tick(request: bytes, context: Any) -> AsyncIterator[bytes]:
        heard("tick")
        while True:
            yield b"tick"
            await asyncio.sleep(0.01)

    unary = {one.__name__: one for one in (echo, hang, wait, refuse, tell)}
    streams = {one.__name__: one for one in (count, tick)}
    return {name: grpc.unary_unary_rpc_method_handler(one) for name, one in unary.items()} | {
        name: grpc.unary_stream_rpc_method_handler(one) for name, one in streams.items()
    }


def at(port: int, protocol: str = "grpc", host: str = "127.0.0.1", **metadata: str) -> Instance:
    """An instance o-1 that listens there."""
    return Instance(
        epoch="e",
        revision=1,
        namespace="default",
        service="orders",
        id="o-1",
        term="t",
        endpoints=(Endpoint(host=host, port=port, protocol=protocol),),
        metadata=metadata,
        heartbeat=5.0,
        ttl=15.0,
    )


@asynccontextmanager
async def dialed(dialer: Dialer[aio.Channel], one: Instance) -> AsyncIterator[aio.Channel]:
    """A channel for as long as the block lasts."""
    channel = await dialer.dial(one, one.endpoint)
    try:
        yield channel
    finally:
        await dialer.close(channel)


async def call(channel: aio.Channel, method: str, request: bytes = b"hello", timeout: float = 20.0) -> bytes:
    """Call one of the methods of our servers."""
    answer: bytes = await channel.unary_unary(path(method))(request, timeout=timeout)
    return answer


async def failed(
    channel: aio.Channel, method: str, request: bytes = b"hello", timeout: float = 20.0
) -> aio.AioRpcError:
    """How such a call fails."""
    with pytest.raises(aio.AioRpcError) as raised:
        await call(channel, method, request, timeout)
    return raised.value


async def main(port: int, key: Key) -> None:
    """Serve until told to stop."""
    server = aio.server(options=[("grpc.so_reuseport", 0)])

    def heard(method: str) -> None:
        print(f"called {method}", flush=True)

    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods(heard)),))
    add_health(server, key)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: asyncio.ensure_future(server.stop(10.0)))
    print("listening", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Key(*sys.argv[2].split("/"))))
