"""The connection that is made once, in both event loops, whose transports differ."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from adsum.clients.peers import flight, grpc
from adsum.events.cord import Cord, NotConnected
from adsum.events.description import Endpoint
from tests.cli.programs import free_port
from tests.making import key
from tests.peers import test_flight
from tests.peers.flight_callee import Server
from tests.peers.grpc_callee import at, call, dialed, serving
from tests.peers.machine import no_socket_left
from tests.waiting import until

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """What runs a test in an event loop."""

    def run_in_loop(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(test)

    return run_in_loop


@asynccontextmanager
async def tied(endpoint: Endpoint) -> AsyncIterator[tuple[Cord, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A cord, and the connection of a library to it."""
    cord = await Cord.tie(endpoint)
    reader, writer = await asyncio.open_unix_connection(cord.path)
    try:
        yield cord, reader, writer
    finally:
        writer.transport.abort()
        await cord.close()


@asynccontextmanager
async def echoing(
    greeting: bytes = b"", ends: bool = False
) -> AsyncIterator[tuple[Endpoint, list[asyncio.StreamWriter]]]:
    """A server that greets, and says again what it hears unless it `ends`; its connections."""
    taken: list[asyncio.StreamWriter] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(writer)
        writer.write(greeting)
        while not ends and (heard := await reader.read(65536)):
            writer.write(heard)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        yield Endpoint(host="127.0.0.1", port=server.sockets[0].getsockname()[1]), taken
        for writer in taken:
            writer.transport.abort()


def test_what_goes_in_comes_out_however_much_and_there_is_no_second_time(run: Run) -> None:
    async def test() -> None:
        sent = os.urandom(5_000_000)
        async with echoing(b"hello") as (endpoint, taken), tied(endpoint) as (cord, reader, writer):
            assert await reader.readexactly(5) == b"hello"
            writer.write(sent)
            assert await reader.readexactly(len(sent)) == sent
            with pytest.raises(OSError, match="No such file"):
                await asyncio.open_unix_connection(cord.path)
            assert (cord.stands, len(taken)) == (True, 1)
            writer.close()
            await until(lambda: not cord.stands)
            await until(taken[0].transport.is_closing)

    run(test())


def test_a_reader_that_is_slow_holds_up_the_writer_and_nothing_is_lost(run: Run) -> None:
    """What waits in between is bounded."""

    async def test() -> None:
        sent: list[int] = []

        async def write(writer: asyncio.StreamWriter) -> None:
            while len(sent) < 1_000:
                writer.write(bytes([len(sent) % 256]) * 100_000)
                await writer.drain()
                sent.append(len(sent))

        async with echoing() as (endpoint, _), tied(endpoint) as (_, reader, writer):
            writing = asyncio.ensure_future(write(writer))
            held_up = 0
            while len(sent) > held_up or not held_up:
                held_up = len(sent)
                await asyncio.sleep(0.2)
            assert held_up < 500, "100 MB were to be sent, and nobody read"
            for number in range(1_000):
                assert await reader.readexactly(100_000) == bytes([number % 256]) * 100_000
            await writing

    run(test())


def test_what_a_peer_said_before_it_ended_is_delivered(run: Run) -> None:
    async def test() -> None:
        async with echoing(b"goodbye", ends=True) as (endpoint, taken):
            async with tied(endpoint) as (cord, reader, _):
                assert await reader.read() == b"goodbye"
                await until(lambda: not cord.stands)
            cord = await Cord.tie(endpoint)
            await until(lambda: not cord.stands)
            with pytest.raises(OSError, match="No such file"):
                await asyncio.open_unix_connection(cord.path)
            await cord.close()
            assert len(taken) == 2

    run(test())


def test_it_leaves_nothing_behind_whether_it_was_used_or_not(run: Run) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    def folders() -> list[str]:
        return os.listdir(tempfile.gettempdir())

    async def test() -> None:
        async with echoing() as (endpoint, _):
            cord = await Cord.tie(endpoint)
            await cord.close()
            before = held()
            for used in (True, False) * 10:
                cord = await Cord.tie(endpoint)
                if used:
                    client = socket.socket(socket.AF_UNIX)
                    client.connect(cord.path)
                    client.close()
                await cord.close()
                assert os.path.dirname(cord.path) not in [f"{tempfile.gettempdir()}/{name}" for name in folders()]
            await until(held, lambda now: now <= before)
        with pytest.raises(NotConnected):
            await Cord.tie(Endpoint(host="127.0.0.1", port=free_port()))

    run(test())


def test_where_no_socket_is_left_it_ends(run: Run) -> None:
    """And is not tried again for as long as nobody closes one; nothing is left of it."""

    async def test() -> None:
        async with echoing() as (endpoint, _):
            cord = await Cord.tie(endpoint)
            with socket.socket(socket.AF_UNIX) as client:
                with no_socket_left():
                    client.connect(cord.path)
                    await until(lambda: not cord.stands)
                assert cord.path.split("/")[-2] not in os.listdir(tempfile.gettempdir())
                with pytest.raises(ConnectionResetError):
                    client.recv(1)
            await cord.close()

    run(test())


def test_grpc_and_flight_go_through_it(run: Run) -> None:
    async def test() -> None:
        async with serving(key("o-1")) as server, dialed(grpc(), at(server.port)) as channel:
            assert await call(channel, "echo") == b"hello"
        with Server() as flying:
            async with test_flight.dialed(flight(), at(flying.port)) as peer:
                assert await peer.do_action("echo", b"hello", timeout=20) == [b"hello"]

    run(test())
