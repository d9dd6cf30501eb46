"""Probes by the health check of gRPC: at real gRPC servers, by a real adsumd, and by one that has no grpcio."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2

from adsum.clients import Registration, Registry, connect
from adsum.events.broker import Broker
from adsum.events.description import GRPC_HEALTH, Endpoint
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.probes import Outcome, probe
from tests.cli.programs import free_port
from tests.daemons import AdsumDaemon, adsumd, start_adsumd
from tests.making import key
from tests.peers.certificates import certificate, read
from tests.peers.grpc_callee import GrpcServer, serving
from tests.peers.test_probing import healths, is_told, present
from tests.waiting import until

WITHOUT = "import sys; sys.modules['grpc'] = None; from adsum.projector.main import main; main()"
SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)


def at(port: int, protocol: str = "grpc") -> Endpoint:
    return Endpoint(host="127.0.0.1", port=port, protocol=protocol)


# ---- one probe


async def test_the_health_that_a_server_tells_counts() -> None:
    async with serving(key("o-1")) as server:
        tried = f"call of grpc://127.0.0.1:{server.port}/grpc.health.v1.Health/Check"
        assert await probe(at(server.port), GRPC_HEALTH) == Outcome(True, tried, "SERVING")
        await server.health.set("", NOT_SERVING)
        assert await probe(at(server.port), GRPC_HEALTH) == Outcome(False, tried, "NOT_SERVING")
        for endpoint, path in ((at(server.port), ""), (at(server.port, "tcp"), GRPC_HEALTH)):
            assert (await probe(endpoint, path)).found == "connected"


async def test_who_has_no_health_or_keeps_it_to_himself_answers() -> None:
    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    outcome = await probe(at(port), GRPC_HEALTH)
    assert (outcome.reached, outcome.found) == (True, "status UNIMPLEMENTED")
    await server.stop(None)


async def test_over_tls_whoever_answers_answers(tmp_path: Path) -> None:
    trusted, secret = read(*certificate(tmp_path, "somebody-else"))
    async with serving(key("o-1"), credentials=grpc.ssl_server_credentials([(secret, trusted)])) as server:
        assert (await probe(at(server.port, "grpcs"), GRPC_HEALTH)).found == "SERVING"
    async with serving(key("o-1")) as server:
        assert (await probe(at(server.port, "grpcs"), GRPC_HEALTH)).reached is False, "it speaks no TLS"


async def test_who_does_not_answer_in_grpc_is_not_reached_and_told_in_the_same_words_each_time() -> None:
    async def say_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n" * 10)
        await writer.drain()
        writer.close()

    assert (await probe(at(free_port()), GRPC_HEALTH)).found == "connection refused"
    async with await asyncio.start_server(say_hello, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        outcomes = [await probe(at(port), GRPC_HEALTH) for _ in range(2)]
        assert outcomes[0] == outcomes[1]
        assert (outcomes[0].reached, outcomes[0].found) == (False, "status UNAVAILABLE")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        outcome = await probe(at(silent.getsockname()[1]), GRPC_HEALTH, timeout=0.3)
        assert (outcome.reached, outcome.found) == (False, "no answer within 0.3 s")


async def test_probes_leave_nothing_behind() -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with serving(key("o-1")) as server:
        await probe(at(server.port), GRPC_HEALTH)
        files = held()
        for _ in range(20):
            assert (await probe(at(server.port), GRPC_HEALTH)).reached
        await until(held, lambda now: now <= files)


async def test_a_machine_that_has_no_folder_left_says_nothing_of_the_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    async with serving(key("o-1")) as server:
        outcome = await probe(at(server.port), GRPC_HEALTH)
    assert (outcome.reached, outcome.found) == (None, os.strerror(errno.ENOENT).lower())


# ---- an adsumd


@pytest.fixture
async def registry(nats: EmbeddedBroker) -> AsyncIterator[Registry]:
    """A process that owns an instance and calls it."""
    async with connect(nats.url, name="caller-1") as one:
        yield one


def owned(registry: Registry, server: GrpcServer) -> Registration:
    """An instance that declares the health of gRPC."""
    return registry.register(
        "orders", id="o-1", host="127.0.0.1", port=server.port, protocol="grpc", metadata={"health.main": GRPC_HEALTH}
    )


async def test_who_does_not_serve_is_critical_once_reported_and_back_when_it_serves(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, registry: Registry
) -> None:
    async with (
        adsumd(tmp_path / "data", "--nats", nats.url),
        serving(key("o-1")) as server,
        owned(registry, server),
    ):
        peer = await present(broker)
        await server.health.set("", NOT_SERVING)
        await registry.report(peer, reason="it declined")
        told = await is_told(broker, "critical")
        tried = f"call of grpc://127.0.0.1:{server.port}/grpc.health.v1.Health/Check"
        assert told.reason == f"unreachable: {tried}: NOT_SERVING, 2 times; reported by 1 caller"
        await server.health.set("", SERVING)
        await is_told(broker, "passing")
    assert [(who, health) for who, health, _ in await healths(broker)] == [
        ("prober", "critical"),
        ("prober", "passing"),
    ]


@asynccontextmanager
async def without_grpcio(folder: Path, url: str) -> AsyncIterator[AdsumDaemon]:
    """An adsumd on a machine where grpcio is not installed."""
    daemon = await start_adsumd(folder, ["--nats", url], program=("-c", WITHOUT))
    try:
        await daemon.ready()
        yield daemon
    finally:
        await daemon.stop()


async def test_without_grpcio_it_is_connected_to_and_that_is_said_once(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, registry: Registry
) -> None:
    async with without_grpcio(tmp_path / "data", nats.url) as daemon:
        async with serving(key("o-1")) as server, owned(registry, server):
            peer = await present(broker)
            await server.health.set("", NOT_SERVING)
            await registry.report(peer)
            await until(lambda: daemon.stderr.count("only connected to"), seconds=30)
            await server.server.stop(None)
            told = await until_reported(registry, broker)
            assert f"connect to 127.0.0.1:{server.port}: connection refused" in told
            assert [health for _, health, _ in await healths(broker)] == ["critical"], (
                "a connect noticed no NOT_SERVING"
            )
        assert daemon.stderr.count("pip install 'adsum[grpc]'") == 1


async def until_reported(registry: Registry, broker: Broker) -> str:
    """Report it until it is critical, and why it is: reports rest for some seconds after a probe."""

    async def look() -> str:
        peer = await present(broker)
        if peer.health != "critical":
            await registry.report(peer)
        return peer.reason

    return await until(look, seconds=40)
