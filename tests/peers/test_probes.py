"""What a probe finds at real listeners on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adsum.events.description import Endpoint
from adsum.events.machine import is_of_this_machine
from adsum.projector.probes import Outcome, probe
from tests.cli.programs import free_port
from tests.peers.certificates import certificate


@asynccontextmanager
async def answering(answer: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that says this to whoever asks (None: nothing), and its port; the second gets what it is asked."""
    asked: list[bytes] = []
    done = asyncio.Event()
    answers: list[asyncio.Task[None] | None] = []

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(asyncio.current_task())
        asked.append(await reader.read(4096))
        if answer is None:
            await done.wait()
        else:
            writer.write(answer)
        writer.close()
        with contextlib.suppress(OSError):  # whoever asked may have gone
            await writer.wait_closed()

    server = await asyncio.start_server(answer_one, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], asked
    finally:
        done.set()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*filter(None, answers), return_exceptions=True)


def at(port: int, protocol: str = "http", host: str = "127.0.0.1") -> Endpoint:
    return Endpoint(host=host, port=port, protocol=protocol)


@pytest.mark.parametrize(
    ("answer", "reached", "found"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True, "status 200"),
        (b"HTTP/1.0 204\r\n\r\n", True, "status 204"),
        (b"HTTP/1.1 302 Found\r\n\r\n", True, "status 302"),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", True, "status 401"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", True, "status 404"),
        (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", False, "status 500"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False, "status 503"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", False, "no answer in HTTP"),
        (b"x" * 100_000, False, "no answer in HTTP"),
        (b"", False, "no answer in HTTP"),
    ],
)
async def test_a_path_is_asked_for_and_the_status_counts(answer: bytes, reached: bool, found: str) -> None:
    async with answering(answer) as (port, asked):
        outcome = await probe(at(port), "/health?full")
    assert outcome == Outcome(reached, f"GET http://127.0.0.1:{port}/health?full", found)
    assert asked[0].startswith(b"GET /health?full HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % port)


@pytest.mark.parametrize("path", ["", "/health"])
async def test_nobody_listens(path: str) -> None:
    outcome = await probe(at(free_port()), path)
    assert (outcome.reached, outcome.found) == (False, "connection refused")


async def test_who_takes_the_connection_and_says_nothing() -> None:
    async with answering(None) as (port, _):
        outcome = await probe(at(port), "/health", timeout=0.3)
        assert (outcome.reached, outcome.found) == (False, "no answer within 0.3 s")
        assert (await probe(at(port), "")).reached, "a connect does not notice it"
        assert (await probe(at(port, "grpc"), "/health")).tried == f"connect to 127.0.0.1:{port}"


async def test_packets_that_nobody_takes() -> None:
    """A listener whose queue is full drops them, as a firewall does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = []
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        outcome = await probe(at(port), "", timeout=0.5)
        for one in waiting:
            one.close()
    assert (outcome.reached, outcome.found) == (False, "no answer within 0.5 s")


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """What a server needs to show a certificate that nobody has reason to believe."""
    shown, key = certificate(tmp_path, "somebody-else")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown, key)
    return context


async def test_over_tls_whoever_answers_answers(tls: ssl.SSLContext) -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n", tls) as (port, _):
        assert (await probe(at(port, "https"), "/health")).reached
    async with answering(b"HTTP/1.1 200 OK\r\n\r\n") as (port, _):
        assert (await probe(at(port, "https"), "/health")).reached is False, "it speaks no TLS"


@pytest.mark.parametrize("endpoint", [at(99_999), at(1, host="a\0b"), at(1, host="x" * 300), at(1, host="..")])
async def test_what_no_checked_description_holds_ends_nothing(endpoint: Endpoint) -> None:
    """A foreign author may have written it into the log."""
    assert (await probe(endpoint, "")).reached is not True


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, ""), False),
        (OSError(errno.EHOSTUNREACH, ""), False),
        (OSError(errno.ENETUNREACH, ""), True),
        (OSError(errno.EMFILE, ""), True),
        (PermissionError(errno.EPERM, ""), True),
        (socket.gaierror(socket.EAI_NONAME, ""), False),
        (socket.gaierror(socket.EAI_AGAIN, ""), True),
    ],
)
def test_what_says_more_of_this_machine_says_nothing_of_the_other(error: OSError, ours: bool) -> None:
    assert is_of_this_machine(error) is ours
