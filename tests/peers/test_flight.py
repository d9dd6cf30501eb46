"""`flight()` on real servers: awaited calls, one connection that never comes again, who answers, whose fault it was."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from pyarrow import flight as library

from adsum.clients.peers import IDENTITY, Blame, Dialer, flight
from adsum.clients.peers.flight_dialer import FlightConnection
from adsum.events.cord import NotConnected
from adsum.events.description import FLIGHT_ACTION
from adsum.events.signals import Instance
from tests.cli.programs import free_port
from tests.peers.callee import callee
from tests.peers.certificates import certificate, read
from tests.peers.flight_callee import Server, table
from tests.peers.grpc_callee import at
from tests.proxy import proxy_to
from tests.waiting import until

HEALTH = {"health.main": FLIGHT_ACTION}
TICKET = library.Ticket(b"100")


@asynccontextmanager
async def dialed(dialer: Dialer[FlightConnection], one: Instance) -> AsyncIterator[FlightConnection]:
    """A connection for as long as the block lasts."""
    connection = await dialer.dial(one, one.endpoint)
    try:
        yield connection
    finally:
        await dialer.close(connection)


# ---- calls


async def test_each_kind_of_call_is_awaited() -> None:
    descriptor = library.FlightDescriptor.for_command(b"all")
    with Server() as server:
        async with dialed(flight(), at(server.port)) as peer:
            assert await peer.do_action("echo", b"hello", timeout=20) == [b"hello"]
            assert (await peer.do_get(TICKET, timeout=20)).num_rows == 1000
            assert [batch.num_rows async for batch in peer.batches(library.Ticket(b"3"), timeout=20)] == [10, 10, 10]
            await peer.do_put(descriptor, table(100_000), timeout=20)
            assert server.put == [table(100_000)]
            assert (await peer.get_flight_info(descriptor, timeout=20)).total_records == 30
            results = await peer.call(
                lambda client, options: list(client.do_action(library.Action("echo", b"x"), options)), timeout=20
            )
            assert results[0].body.to_pybytes() == b"x"
            assert peer.stands


async def test_the_event_loop_goes_on_while_calls_wait() -> None:
    with Server() as server:
        async with dialed(flight(threads=4), at(server.port)) as peer:
            waiting = [asyncio.ensure_future(peer.do_action("hang", b"20", timeout=30)) for _ in range(3)]
            await until(lambda: server.asked == ["hang"] * 3)
            assert await peer.do_action("echo", b"meanwhile", timeout=20) == [b"meanwhile"]
            server.stop_waiting.set()
            assert await asyncio.gather(*waiting) == [[b"late"]] * 3


async def test_a_deadline_is_kept_and_none_is_left() -> None:
    dialer = flight()
    with Server() as server:
        async with dialed(dialer, at(server.port)) as peer:
            with pytest.raises(library.FlightTimedOutError) as raised:
                await peer.do_action("hang", b"20", timeout=0.3)
            assert dialer.blame(raised.value) is Blame.BROKEN
            with pytest.raises(TimeoutError, match="no time is left"):
                await peer.do_action("echo", timeout=0.0)
            assert server.asked == ["hang"]


@pytest.mark.parametrize("batches", [False, True])
async def test_who_is_cancelled_ends_a_stream_at_the_server_too(batches: bool) -> None:
    ticket = library.Ticket(b"100000 slow")
    with Server() as server:
        async with dialed(flight(), at(server.port)) as peer:

            async def read() -> None:
                if batches:
                    async with aclosing(peer.batches(ticket, timeout=60)) as taken:
                        async for _ in taken:
                            pass
                else:
                    await peer.do_get(ticket, timeout=60)

            reading = asyncio.ensure_future(read())
            await until(lambda: server.yielded > 5)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await until(server.ended.is_set)
            assert await peer.do_action("echo", b"x", timeout=20) == [b"x"]


async def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "orders", "-addext", "subjectAltName=IP:127.0.0.1")
    believes = ssl.create_default_context(cafile=cert)
    believes.set_alpn_protocols(["h2"])
    with Server("o-1", tls_certificates=[tuple(read(cert, key))]) as server:
        async with dialed(flight(tls=believes), at(server.port, "grpc+tls")) as peer:
            assert await peer.do_action("echo", b"hello", timeout=20) == [b"hello"]
        one = at(server.port, "grpcs")
        with pytest.raises(NotConnected, match="CERTIFICATE_VERIFY_FAILED"):
            await flight().dial(one, one.endpoint)


# ---- whose fault it was


async def test_nobody_there_is_told_at_once() -> None:
    dialer, one = flight(), at(free_port())
    with pytest.raises(NotConnected, match=f"127.0.0.1:{one.endpoint.port}") as raised:
        await dialer.dial(one, one.endpoint)
    assert dialer.blame(raised.value) is Blame.UNREACHABLE


async def test_who_takes_the_connection_and_says_nothing_leaves_only_the_deadline() -> None:
    dialer = flight()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with dialed(dialer, at(silent.getsockname()[1])) as peer:
            with pytest.raises(library.FlightError) as raised:
                await peer.do_action("echo", timeout=0.3)
            assert dialer.blame(raised.value) is Blame.BROKEN


async def test_the_server_is_killed_in_the_middle_of_a_call_and_of_a_stream() -> None:
    dialer = flight()
    async with callee("tests.peers.flight_callee", "default/orders/o-1") as server:
        peer = await dialer.dial(at(server.port), at(server.port).endpoint)
        try:
            waiting = asyncio.ensure_future(peer.do_action("hang", b"60", timeout=60))
            reading = asyncio.ensure_future(peer.do_get(library.Ticket(b"100000 slow"), timeout=60))
            for what in ("hang", "get"):
                await server.prints(f"called {what}")
            await server.kill()
            for failed in (waiting, reading):
                with pytest.raises(library.FlightUnavailableError) as raised:
                    await failed
                assert dialer.blame(raised.value) is Blame.BROKEN
            await until(lambda: not peer.stands)
        finally:
            await dialer.close(peer)


async def test_a_connection_that_broke_never_comes_again_and_nobody_else_is_called() -> None:
    """Somebody else listens there at once."""
    dialer = flight()
    with Server() as first, Server("default/billing/b-1") as other:
        async with proxy_to(f"grpc://127.0.0.1:{first.port}") as proxy, dialed(dialer, at(proxy.port)) as peer:
            assert await peer.do_action("echo", b"hello", timeout=20) == [b"hello"]

            async def hammer() -> Exception:
                while True:
                    try:
                        await peer.do_action("echo", timeout=20)
                    except library.FlightError as error:
                        return error

            hammering = [asyncio.ensure_future(hammer()) for _ in range(4)]
            await until(lambda: len(first.asked) > 20)
            proxy.lead_to(other.port)
            proxy.drop()
            errors = await asyncio.gather(*hammering)
            assert {dialer.blame(error) for error in errors} <= {Blame.BROKEN, Blame.UNREACHABLE}
            assert not peer.stands
            for _ in range(3):
                assert dialer.blame(await hammer()) is Blame.UNREACHABLE, "nothing was sent"
        assert other.asked == []


@pytest.mark.parametrize(
    ("error", "blame"),
    [
        ("FlightUnavailableError", Blame.BROKEN),
        ("FlightTimedOutError", Blame.BROKEN),
        ("FlightCancelledError", Blame.BROKEN),
        ("FlightUnauthorizedError", Blame.ANSWERED),
        ("FlightInternalError", Blame.ANSWERED),
        ("FlightServerError", Blame.ANSWERED),
    ],
)
async def test_what_the_server_says_decides(error: str, blame: Blame) -> None:
    dialer = flight()
    with Server() as server:
        async with dialed(dialer, at(server.port)) as peer:
            with pytest.raises(library.FlightError) as raised:
                await peer.do_action("fail", error.encode(), timeout=20)
            assert dialer.blame(raised.value) is blame
            with pytest.raises(library.FlightUnavailableError) as raised:
                await peer.do_action("tell", b"failed to connect to all addresses; unix:/tmp/x: gone", timeout=20)
            assert dialer.blame(raised.value) is Blame.BROKEN, "it speaks of somebody that it could not reach itself"


# ---- who answers


async def test_who_answers_says_who_it_is_where_the_path_of_actions_is_declared() -> None:
    dialer = flight()
    with Server("default/orders/o-1") as server, Server() as silent:
        one = at(server.port, **HEALTH)
        async with dialed(dialer, one) as peer:
            assert await dialer.identify(peer, one, one.endpoint) == "default/orders/o-1"
            assert await dialer.identify(peer, at(server.port), one.endpoint) is None
            assert server.asked == [IDENTITY]
        one = at(silent.port, **HEALTH)
        async with dialed(dialer, one) as peer:
            assert await dialer.identify(peer, one, one.endpoint) == "", "it knows no such action"


# ---- closing


async def test_closing_ends_what_is_under_way_and_leaves_nothing_behind() -> None:
    dialer = flight()

    def held() -> tuple[int, int]:
        threads = [one for one in threading.enumerate() if one.name.startswith("flight to")]
        return len(os.listdir("/proc/self/fd")), len(threads)

    with Server() as server:
        one = at(server.port)
        async with dialed(dialer, one) as peer:
            await peer.do_action("echo", timeout=20)
        files, _ = held()
        for _ in range(10):
            async with dialed(dialer, one) as peer:
                await peer.do_action("echo", timeout=20)
        peer = await dialer.dial(one, one.endpoint)
        waiting = asyncio.ensure_future(peer.do_action("hang", b"60", timeout=60))
        await until(lambda: "hang" in server.asked)
        await dialer.close(peer)
        with pytest.raises(library.FlightUnavailableError):
            await waiting
        with pytest.raises(NotConnected, match="it was closed"):
            await peer.do_action("echo", timeout=20)
        server.stop_waiting.set()
        await until(held, lambda now: now[0] <= files and now[1] == 0)


def test_without_pyarrow_the_clients_are_imported_and_flight_tells_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import adsum.clients, adsum.clients.peers\n"
        "try: adsum.clients.peers.flight()\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "flight() needs pyarrow: pip install 'adsum[flight]'\n"
