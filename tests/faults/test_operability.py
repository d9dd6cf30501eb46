"""Trouble is visible while it lasts: in `adsum status`, and in the log as WARNING, then ERROR, with what to do."""

from __future__ import annotations

import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.streams import EVENTS
from adsum.projector.catalog import REMEDY
from adsum.projector.embedded import EmbeddedBroker
from tests.cli.programs import Adsum
from tests.cluster import Node, cluster, jetstream_answers
from tests.daemons import AdsumDaemon, Service, adsumd
from tests.databases import PostgresServer, postgres, postgres_server
from tests.making import key
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until

__all__ = ["postgres", "postgres_server"]


async def troubles(adsum: Adsum) -> tuple[int, str]:
    """How `adsum status` ends, and all that it says is wrong."""
    status = await adsum("status", "--timeout", "2s")
    told = [line for line in status.out.splitlines() if line.startswith(("trouble", "problem", "set aside", "leader"))]
    return status.code, "\n".join([*told, status.err])


def said(daemon: AdsumDaemon, level: str, what: str) -> list[str]:
    """The lines of a level in a daemon's log that tell of something."""
    return [line for line in daemon.stderr.splitlines() if f" {level} " in line and what in line]


async def test_a_database_that_is_away(
    nats: EmbeddedBroker, tmp_path: Path, postgres_server: PostgresServer, postgres: str
) -> None:
    """At once in the status, after ten seconds the reason why nobody leads; told as ERROR once a TTL has passed."""
    adsum = Adsum(nats.url)
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", postgres) as daemon:
        await until(lambda: adsum("status"), lambda status: status.code == 0, seconds=30)
        postgres_server.crash()
        try:
            _, told = await until(lambda: troubles(adsum), lambda seen: "trouble" in seen[1], seconds=20)
            assert REMEDY in told
            assert said(daemon, "WARNING", REMEDY)
            code, told = await until(lambda: troubles(adsum), lambda seen: "gave the lease back" in seen[1], seconds=40)
            assert (code, REMEDY in told) == (1, True)
            await until(lambda: said(daemon, "ERROR", REMEDY), seconds=60)
        finally:
            postgres_server.start()
        assert await until(lambda: troubles(adsum), lambda seen: seen[0] == 0, seconds=40)
        assert "trouble" not in (await troubles(adsum))[1]


@asynccontextmanager
async def read_only(server: PostgresServer, dsn: str) -> AsyncIterator[None]:
    """The database answers questions and takes no writes, like a standby after a failover."""
    name = urlsplit(dsn).path[1:]
    admin = await asyncpg.connect(server.dsn())
    try:
        await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        yield
        await admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
    finally:
        await admin.close()


async def lasting(adsum: Adsum) -> float:
    """For how long, as `adsum status` tells, something has failed."""
    status = await adsum("status", "--json")
    return max((float(trouble["lasted"]) for trouble in status.json["troubles"]), default=0.0)


async def test_a_database_that_takes_no_writes(
    nats: EmbeddedBroker, tmp_path: Path, postgres_server: PostgresServer, postgres: str
) -> None:
    """Each term of office fails at its start, and the trouble is that of one long failure, not of many short ones."""
    adsum = Adsum(nats.url)
    async with AsyncExitStack() as stack:
        async with read_only(postgres_server, postgres):
            daemon = adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", postgres)
            await stack.enter_async_context(daemon)
            await until(lambda: lasting(adsum), lambda seconds: seconds > 4, seconds=40)
            assert REMEDY in (await troubles(adsum))[1]
        assert await until(lambda: troubles(adsum), lambda seen: seen[0] == 0 and "trouble" not in seen[1], seconds=40)


@pytest.mark.long
async def test_a_database_that_takes_no_writes_any_more(
    nats: EmbeddedBroker, tmp_path: Path, postgres_server: PostgresServer, postgres: str
) -> None:
    """Nothing is folded, and no new term of office hides it: from the alarm on every look says so, and why."""
    adsum = Adsum(nats.url)
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", postgres) as daemon:
        await until(lambda: adsum("status"), lambda status: status.code == 0, seconds=30)
        async with read_only(postgres_server, postgres):
            await until(lambda: said(daemon, "ERROR", REMEDY), seconds=60)
            for _ in range(4):
                code, told = await troubles(adsum)
                assert (code, REMEDY in told) == (1, True), told
            assert daemon.stderr.count("leading from tick") < 15  # each second it would be without a pause
        assert await until(lambda: troubles(adsum), lambda seen: seen[0] == 0 and "trouble" not in seen[1], seconds=40)


@asynccontextmanager
async def fresh_cluster(tmp_path: Path) -> AsyncIterator[tuple[list[Node], str]]:
    """A cluster that is ready for its first adsumd, and its URL."""
    async with cluster(tmp_path) as nodes:
        urls = ",".join(node.url for node in nodes)
        bus = await connected(urls)
        await jetstream_answers(bus)
        await bus.close()
        yield nodes, urls


@pytest.mark.long
async def test_a_cluster_that_loses_servers(tmp_path: Path) -> None:
    """One of three away is trouble, two are a failure; both name what to look at, and both pass."""
    async with fresh_cluster(tmp_path) as (nodes, urls):
        adsum = Adsum(urls)
        async with adsumd(tmp_path / "data", "--nats", urls, "--replicas", "3") as daemon:
            await until(lambda: adsum("status"), lambda status: status.code == 0, seconds=40)
            await nodes[0].stop(signal.SIGKILL)
            _, told = await until(lambda: troubles(adsum), lambda seen: "the copy on n0" in seen[1], seconds=40)
            assert "look at that server" in told
            await nodes[1].stop(signal.SIGKILL)
            _, told = await until(lambda: troubles(adsum), lambda seen: seen[0] == 3, seconds=40)
            assert re.search(r"is there and does not work: .*most of the servers have to be up", told)
            await until(lambda: said(daemon, "ERROR", "look at the broker"), seconds=60)
            await nodes[0].start()
            await nodes[1].start()
            await until(lambda: troubles(adsum), lambda seen: seen[0] == 0 and "trouble" not in seen[1], seconds=60)


@pytest.mark.long
async def test_a_server_that_its_successors_never_heard_of(tmp_path: Path) -> None:
    """One of three is away when the others elect a new leader: that nobody knows for how long is a problem too."""
    async with fresh_cluster(tmp_path) as (nodes, urls):
        adsum = Adsum(urls)
        async with adsumd(tmp_path / "data", "--nats", urls, "--replicas", "3"):
            await until(lambda: adsum("status"), lambda status: status.code == 0, seconds=40)
            await nodes[0].stop(signal.SIGKILL)
            await until(lambda: troubles(adsum), lambda seen: "the copy on n0" in seen[1], seconds=60)
            bus = await connected(nodes[1].url)
            await bus.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{EVENTS}", b"")
            await bus.close()
            away = re.compile("^problem .*the copy on n0 is away since before its leader was elected; look at", re.M)
            code, _ = await until(lambda: troubles(adsum), lambda seen: bool(away.search(seen[1])), seconds=60)
            assert code == 1
            await nodes[0].start()
            await until(lambda: troubles(adsum), lambda seen: seen[0] == 0 and "trouble" not in seen[1], seconds=60)


async def test_what_was_set_aside_is_counted(broker: Broker, nats: EmbeddedBroker, tmp_path: Path) -> None:
    """The number is told for as long as the catalog has them, also by the next daemon on that catalog."""
    adsum = Adsum(nats.url)

    async def count() -> Any:
        status = await adsum("status", "--json")
        return (status.json["leader"] or {}).get("rejected")

    for text in (b"junk", b"{}"):
        await broker.store(EVENTS, subjects.event(key()), text, {})
    for _ in range(2):
        async with adsumd(tmp_path / "data", "--nats", nats.url) as daemon:
            assert await until(count, lambda found: bool(found), seconds=20) == 2
            assert "2 messages of the log" in (await troubles(adsum))[1]
    assert "set aside" not in daemon.stderr  # it was told by the daemon that did it


async def test_a_broker_that_is_away(tmp_path: Path) -> None:
    """Whoever is connected says so at once, and as ERROR once it has outlasted the TTL, with what to do."""
    server = await Server(tmp_path / "server").start()
    async with adsumd(tmp_path / "data", "--nats", server.url) as daemon:
        adsum = Adsum(server.url)
        service = await adsum.start("register", "orders", "--port", "1", "--heartbeat", "0.5s", "--ttl", "2s")
        await service.says("registered default/orders")
        await server.kill()
        await until(lambda: said(daemon, "WARNING", "the connection was lost; trying again. If it lasts: start it"))
        await service.says("the connection was lost; trying again. If it lasts: start it")
        await until(lambda: said(daemon, "ERROR", "start it, or mend the network to it"), seconds=40)
        assert (await troubles(adsum))[0] == 3
        await server.start()
        await until(lambda: said(daemon, "INFO", "works again after"))
        await until(lambda: troubles(adsum), lambda seen: seen[0] == 0, seconds=40)
    await adsum.stop()
    await server.stop()


async def test_a_service_that_is_judged_all_at_once_is_named(
    broker: Broker, nats: EmbeddedBroker, tmp_path: Path
) -> None:
    """The service whose expiry the guard holds back stands in the status and in the log, with what to look at."""
    async with adsumd(tmp_path / "data", "--nats", nats.url) as daemon:
        for number in range(4):
            await Service(broker, key(f"o-{number}"), heartbeat=0.5, ttl=1.2).register()
        adsum = Adsum(nats.url)
        seen = await until(lambda: adsum("status"), lambda status: "held" in status.out, seconds=20)
        assert re.search(r"held +default/orders: too many fell silent at once, expiry waits", seen.out)
        assert said(daemon, "WARNING", "look at the network between them and NATS")
        await until(lambda: adsum("status"), lambda status: "held" not in status.out, seconds=40)
        assert said(daemon, "WARNING", "the hold on its expiry is over")
