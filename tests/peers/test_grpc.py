"""`grpc()` on real servers: one connection that never comes again, who answers, what an error says of the peer."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc as library
import pytest
from grpc import StatusCode, aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from adsum.clients.peers import Blame, grpc
from adsum.clients.peers.dialing import NotServing
from adsum.events.cord import PREFIX, NotConnected
from adsum.events.description import GRPC_HEALTH, Endpoint
from adsum.events.names import Key
from tests.cli.programs import free_port
from tests.making import key
from tests.peers.callee import Callee, callee
from tests.peers.certificates import certificate, read
from tests.peers.grpc_callee import at, call, dialed, failed, path, serving
from tests.proxy import proxy_to
from tests.waiting import until

HEALTH = {"health.main": GRPC_HEALTH}


# ---- calls


async def test_a_call_a_stream_and_calls_side_by_side() -> None:
    dialer = grpc()
    async with serving(key("o-1")) as server, dialed(dialer, at(server.port)) as channel:
        assert await call(channel, "echo") == b"hello"
        counted = [one async for one in channel.unary_stream(path("count"))(b"1000")]
        assert counted == [b"%d" % number for number in range(1000)]
        large = os.urandom(3_000_000)
        assert await asyncio.gather(*(call(channel, "echo", large) for _ in range(4))) == [large] * 4
        assert dialer.stands(channel)


async def test_options_and_interceptors_are_those_of_the_channel() -> None:
    class Mark(aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, details, request):  # type: ignore[no-untyped-def]
            return await continuation(details, request + b"!")

    dialer = grpc(options=[("grpc.max_receive_message_length", 100)], interceptors=[Mark()])
    async with serving(key("o-1")) as server, dialed(dialer, at(server.port)) as channel:
        assert await call(channel, "echo") == b"hello!"
        error = await failed(channel, "echo", b"x" * 200)
        assert (error.code(), dialer.blame(error)) == (StatusCode.RESOURCE_EXHAUSTED, Blame.ANSWERED)


async def test_tls_where_the_protocol_is_grpcs_and_whose_certificate_is_believed(tmp_path: Path) -> None:
    cert, private = certificate(tmp_path, "orders", "-addext", "subjectAltName=IP:127.0.0.1")
    trusted, secret = read(cert, private)
    server_side = library.ssl_server_credentials([(secret, trusted)])
    believes = grpc(credentials=library.ssl_channel_credentials(trusted))
    async with serving(key("o-1"), credentials=server_side) as server:
        async with dialed(believes, at(server.port, "grpcs", **HEALTH)) as channel:
            assert await call(channel, "echo") == b"hello"
            assert await believes.identify(channel, at(server.port, "grpcs", **HEALTH), Endpoint(host="x", port=1))
        for dialer, one in ((grpc(), at(server.port, "grpcs")), (believes, at(server.port, "grpc"))):
            with pytest.raises(NotConnected) as raised:
                await dialer.dial(one, one.endpoint)
            assert dialer.blame(raised.value) is Blame.UNREACHABLE
    async with serving(key("o-1")) as plain:
        with pytest.raises(NotConnected):
            await believes.dial(at(plain.port, "grpcs"), at(plain.port, "grpcs").endpoint)


# ---- who cannot be reached


@pytest.mark.parametrize(
    ("host", "why"), [("127.0.0.1", "refused|Connect call failed"), ("nobody.invalid", "no connection to")]
)
async def test_nobody_there_is_told_at_once(host: str, why: str) -> None:
    dialer, one = grpc(), at(free_port(), host=host)
    async with asyncio.timeout(20):
        with pytest.raises(NotConnected, match=why) as raised:
            await dialer.dial(one, one.endpoint)
    assert dialer.blame(raised.value) is Blame.UNREACHABLE
    assert f"{host}:{one.endpoint.port}" in str(raised.value)


async def test_a_listener_that_speaks_something_else() -> None:
    async def say_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n" * 10)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(say_hello, "127.0.0.1", 0) as other:
        one = at(other.sockets[0].getsockname()[1])
        with pytest.raises(NotConnected):
            await grpc().dial(one, one.endpoint)


async def test_who_takes_the_connection_and_says_nothing_is_waited_for_until_cancelled() -> None:
    before = descriptors()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = at(silent.getsockname()[1])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await grpc().dial(one, one.endpoint)
    await until(descriptors, lambda now: now <= before)


# ---- what breaks in the middle


@asynccontextmanager
async def process(of: Key) -> AsyncIterator[Callee]:
    """A server in a process of its own."""
    async with callee("tests.peers.grpc_callee", str(of)) as one:
        yield one


async def drain(stream: aio.UnaryStreamCall) -> None:
    """Read a stream to its end."""
    while await stream.read() is not aio.EOF:
        pass


async def test_the_server_is_killed_in_the_middle_of_a_call_and_of_a_stream() -> None:
    dialer = grpc()
    async with process(key("o-1")) as server, dialed(dialer, at(server.port)) as channel:
        stream = channel.unary_stream(path("tick"))(b"")
        assert await stream.read() == b"tick"
        waiting = asyncio.ensure_future(failed(channel, "hang"))
        await server.prints("called hang")
        await server.kill()
        error = await waiting
        assert (error.code(), dialer.blame(error)) == (StatusCode.UNAVAILABLE, Blame.BROKEN)
        with pytest.raises(aio.AioRpcError) as raised:
            await drain(stream)
        assert dialer.blame(raised.value) is Blame.BROKEN
        await until(lambda: not dialer.stands(channel))


async def test_a_connection_that_broke_never_comes_again() -> None:
    """Neither by itself nor for a call, though somebody listens there again; and what is called then was not sent."""
    dialer = grpc()
    async with serving(key("o-1")) as server, proxy_to(f"grpc://127.0.0.1:{server.port}") as proxy:
        async with dialed(dialer, at(proxy.port)) as channel:
            assert await call(channel, "echo") == b"hello"
            proxy.drop()
            await until(lambda: not dialer.stands(channel))
            error = await failed(channel, "echo")
            assert (error.code(), dialer.blame(error)) == (StatusCode.UNAVAILABLE, Blame.UNREACHABLE)
            assert dialer.blame(await failed(channel, "echo")) is Blame.UNREACHABLE
            assert not dialer.stands(channel)
            assert proxy.connections == 0
        assert server.asked == ["echo"]
        async with dialed(dialer, at(proxy.port)) as again:
            assert await call(again, "echo") == b"hello"


async def test_an_address_that_leads_elsewhere_in_the_middle_of_many_calls_is_not_called() -> None:
    """The other one is there already when the first is cut off: the moment in which gRPC itself would call it."""
    dialer = grpc()
    async with serving(key("o-1")) as first, serving(key("o-1", "billing")) as other:
        for _ in range(20):
            async with proxy_to(f"grpc://127.0.0.1:{first.port}") as proxy, dialed(dialer, at(proxy.port)) as channel:

                async def hammer(channel: aio.Channel = channel) -> None:
                    for _ in range(3):
                        with contextlib.suppress(aio.AioRpcError):
                            while not other.asked:
                                await call(channel, "echo")

                hammering = [asyncio.ensure_future(hammer()) for _ in range(8)]
                asked = len(first.asked)
                await until(lambda asked=asked: len(first.asked) > asked + 16)
                proxy.lead_to(other.port)
                proxy.drop()
                await asyncio.gather(*hammering)
        assert other.asked == []


async def test_a_server_that_stops_politely_finishes_what_it_took_and_stands_no_more() -> None:
    dialer = grpc()
    async with serving(key("o-1")) as server, dialed(dialer, at(server.port)) as channel:
        under_way = asyncio.ensure_future(call(channel, "wait", b"1.0"))
        await until(lambda: server.asked)
        stopping = asyncio.ensure_future(server.server.stop(20.0))
        await until(lambda: not dialer.stands(channel))
        assert not under_way.done()
        assert await under_way == b"1.0"
        await stopping


async def test_a_network_that_swallows_everything_leaves_only_the_deadline() -> None:
    dialer = grpc()
    async with serving(key("o-1")) as server, proxy_to(f"grpc://127.0.0.1:{server.port}") as proxy:
        async with dialed(dialer, at(proxy.port)) as channel:
            assert await call(channel, "echo") == b"hello"
            proxy.blackhole()
            error = await failed(channel, "echo", timeout=0.3)
            assert (error.code(), dialer.blame(error)) == (StatusCode.DEADLINE_EXCEEDED, Blame.BROKEN)
        assert server.asked == ["echo"]


# ---- what a server says


@pytest.mark.parametrize(
    ("said", "blame"),
    [
        ("UNAVAILABLE", Blame.BROKEN),
        ("UNAVAILABLE 50", Blame.DECLINED),
        ("UNAVAILABLE -1", Blame.BROKEN),
        ("RESOURCE_EXHAUSTED", Blame.ANSWERED),
        ("RESOURCE_EXHAUSTED 0", Blame.DECLINED),
        ("DEADLINE_EXCEEDED", Blame.BROKEN),
        ("CANCELLED", Blame.BROKEN),
        ("FAILED_PRECONDITION", Blame.ANSWERED),
        ("INTERNAL", Blame.ANSWERED),
        ("UNKNOWN", Blame.ANSWERED),
    ],
)
async def test_what_the_server_says_decides(said: str, blame: Blame) -> None:
    dialer = grpc()
    async with serving(key("o-1")) as server, dialed(dialer, at(server.port)) as channel:
        error = await failed(channel, "refuse", said.encode())
        assert (error.code().name, dialer.blame(error)) == (said.split()[0], blame)
        assert dialer.stands(channel)


async def test_the_words_of_a_server_that_could_not_reach_somebody_else_are_not_ours() -> None:
    """It may have begun with the call before it found that out."""
    dialer = grpc()
    async with serving(key("o-1")) as server, dialed(dialer, at(server.port)) as channel:
        told = b"UNAVAILABLE failed to connect to all addresses; last error: UNKNOWN: unix:/tmp/s: No such file"
        with pytest.raises(aio.AioRpcError) as raised:
            await channel.unary_unary(path("tell"))(told)
        assert "failed to connect" in (raised.value.details() or "")
        assert dialer.blame(raised.value) is Blame.BROKEN


async def test_a_server_that_takes_no_more_calls_at_once() -> None:
    """Its library refuses before anything is done, but in words that a server could also pass on: so it is not told."""
    dialer = grpc()
    async with serving(key("o-1"), limit=1) as server, dialed(dialer, at(server.port)) as channel:
        waiting = asyncio.ensure_future(call(channel, "hang"))
        await until(lambda: server.asked)
        error = await failed(channel, "echo")
        assert (error.code(), dialer.blame(error)) == (StatusCode.RESOURCE_EXHAUSTED, Blame.ANSWERED)
        one = at(server.port, **HEALTH)
        with pytest.raises(NotServing, match="takes no more calls") as declined:
            await dialer.identify(channel, one, one.endpoint)
        assert dialer.blame(declined.value) is Blame.DECLINED, "of a check it is known that nothing is done"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


def test_an_error_of_the_caller_s_own_says_nothing_of_the_peer() -> None:
    assert {grpc().blame(error) for error in (ValueError("x"), ConnectionResetError(), aio.UsageError("x"))} == {
        Blame.ANSWERED
    }


# ---- who answers


async def test_who_answers_says_who_it_is_where_a_health_check_is_declared() -> None:
    dialer = grpc()
    async with serving(key("o-1")) as server:
        one = at(server.port, **HEALTH)
        async with dialed(dialer, one) as channel:
            assert await dialer.identify(channel, one, one.endpoint) == "default/orders/o-1"
            for metadata in ({}, {"health.main": "/healthz"}, {"health.other": GRPC_HEALTH}):
                other = at(server.port, **metadata)
                assert await dialer.identify(channel, other, other.endpoint) is None


async def test_who_does_not_serve_now_declines() -> None:
    dialer = grpc()
    async with serving(key("o-1")) as server:
        one = at(server.port, **HEALTH)
        async with dialed(dialer, one) as channel:
            await server.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
            with pytest.raises(NotServing, match="o-1 is NOT_SERVING") as raised:
                await dialer.identify(channel, one, one.endpoint)
            assert dialer.blame(raised.value) is Blame.DECLINED
            await server.health.set("", health_pb2.HealthCheckResponse.SERVING)
            assert await dialer.identify(channel, one, one.endpoint) == "default/orders/o-1"


async def test_a_taken_over_address_is_told_apart() -> None:
    """By another service of ours, by one whose health says nothing of that, and by one without any health."""
    dialer = grpc()
    async with serving(key("b-1", "billing")) as server:
        one = at(server.port, **HEALTH)
        async with dialed(dialer, one) as channel:
            assert await dialer.identify(channel, one, one.endpoint) == "default/billing/b-1"

    other = aio.server()
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    one = at(port, **HEALTH)
    async with dialed(dialer, one) as channel:
        assert await dialer.identify(channel, one, one.endpoint) == ""
    await other.stop(None)

    other = aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), other)
    port = other.add_insecure_port("127.0.0.1:0")
    await other.start()
    one = at(port, **HEALTH)
    async with dialed(dialer, one) as channel:
        assert await dialer.identify(channel, one, one.endpoint) == ""
    await other.stop(None)


# ---- closing


def descriptors() -> int:
    """How many files and sockets this process holds."""
    return len(os.listdir("/proc/self/fd"))


async def test_closing_leaves_nothing_behind() -> None:
    async with serving(key("o-1")) as server:
        one, dialer = at(server.port), grpc()
        async with dialed(dialer, one) as channel:
            await call(channel, "echo")
        files, threads = descriptors(), threading.active_count()
        for _ in range(20):
            async with dialed(dialer, one) as channel:
                await call(channel, "echo")
        await until(descriptors, lambda now: now <= files)
        assert threading.active_count() <= threads
        assert [task for task in asyncio.all_tasks() if "cord" in task.get_name()] == []
        assert [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(f"{PREFIX}{os.getpid()}-")] == []


async def test_a_call_that_is_under_way_when_its_channel_is_closed_fails_and_its_caller_is_not_cancelled() -> None:
    dialer = grpc()
    async with serving(key("o-1")) as server:
        one = at(server.port)
        channel = await dialer.dial(one, one.endpoint)
        waiting = asyncio.ensure_future(call(channel, "hang"))
        await until(lambda: server.asked)
        await dialer.close(channel)
        with pytest.raises(aio.AioRpcError) as raised:
            await waiting
        assert dialer.blame(raised.value) is Blame.BROKEN
        with pytest.raises(aio.UsageError) as unsent:
            await call(channel, "echo")
        assert dialer.blame(unsent.value) is Blame.UNREACHABLE


def test_without_grpcio_the_clients_are_imported_and_grpc_tells_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "import adsum.clients, adsum.clients.peers\n"
        "try: adsum.clients.peers.grpc()\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "grpc() needs grpcio: pip install 'adsum[grpc]'\n"
