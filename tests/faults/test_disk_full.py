"""Disks that are really full: nothing acknowledged is lost, it is told, and all goes on once there is room."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import asyncpg
import psutil
import pytest

from adsum.clients import connect
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.errors import BrokerUnavailable
from adsum.events.reader import StreamReader
from adsum.events.signals import Instance
from adsum.events.streams import EVENTS
from adsum.projector.embedded import RESTART_AFTER, EmbeddedBroker
from tests.daemons import AdsumDaemon, Service, adsumd, topology
from tests.databases import PostgresServer
from tests.disks import Disk, small_disk
from tests.making import description, key
from tests.projector.test_daemon import FREE, connected, refused
from tests.servers import Server
from tests.waiting import until

NO_ROOM = "o space left on device"
MANY = 40


class FullCatalog:
    """A catalog on a small disk: its DSN, the events it holds."""

    def __init__(self, disk: Disk, dsn: str, folded: Callable[[], Awaitable[list[tuple[int, str]]]]) -> None:
        self.disk, self.dsn, self.folded = disk, dsn, folded


@asynccontextmanager
async def sqlite_on_a_small_disk(tmp_path: Path) -> AsyncIterator[FullCatalog]:
    """An SQLite file, alone on its disk."""

    async def folded() -> list[tuple[int, str]]:
        with closing(sqlite3.connect(tmp_path / "disk" / "catalog.db")) as database:
            return database.execute("SELECT sequence, type FROM events ORDER BY sequence").fetchall()

    with small_disk(tmp_path / "disk", 8) as disk:
        yield FullCatalog(disk, f"sqlite:///{disk.folder / 'catalog.db'}", folded)


@asynccontextmanager
async def postgres_on_a_small_disk(server: PostgresServer) -> AsyncIterator[FullCatalog]:
    """A database whose tables lie on a disk of their own (a tablespace); the server's own data have room."""
    folder = server.data.with_name(f"{server.data.name}-small")
    with small_disk(folder, 24) as disk:
        owner = server.data.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        admin = await asyncpg.connect(server.dsn())
        try:
            await admin.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
            await admin.execute("CREATE DATABASE small TABLESPACE small")

            async def folded() -> list[tuple[int, str]]:
                connection = await asyncpg.connect(server.dsn("small"))
                rows = await connection.fetch("SELECT sequence, type FROM events ORDER BY sequence")
                await connection.close()
                return [tuple(row) for row in rows]

            yield FullCatalog(disk, server.dsn("small"), folded)
            await admin.execute("DROP DATABASE small WITH (FORCE)")
            await admin.execute("DROP TABLESPACE small")
        finally:
            await admin.close()
    folder.rmdir()


@pytest.fixture(params=["sqlite", "postgres"])
async def full_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FullCatalog]:
    """A catalog that can be made full."""
    if request.param == "sqlite":
        async with sqlite_on_a_small_disk(tmp_path) as made:
            yield made
    else:
        async with postgres_on_a_small_disk(request.getfixturevalue("postgres_server")) as made:
            yield made


async def register_large(bus: Broker, name: str) -> None:
    """A registration that no free corner of a page takes."""
    service = Service(bus, key(name))
    service.said = description(heartbeat=5, ttl=300, metadata={"padding": "x" * 3000})
    await service.register()


async def test_the_catalogs_disk_is_full(tmp_path: Path, nats: EmbeddedBroker, full_catalog: FullCatalog) -> None:
    """The log waits: whatever is registered meanwhile is acknowledged, and folded in order once there is room."""
    bus = await connected(nats.url)
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", full_catalog.dsn) as daemon:
        await register_large(bus, "before")
        await until(lambda: topology(bus, key("before")))
        full_catalog.disk.fill()
        for n in range(MANY):
            await register_large(bus, f"while-{n}")
        await until(lambda: "trying again" in daemon.stderr, seconds=30)
        assert "full" in daemon.stderr or NO_ROOM in daemon.stderr
        assert await topology(bus, key(f"while-{MANY - 1}")) is None
        full_catalog.disk.empty()
        seen = await until(lambda: topology(bus, key(f"while-{MANY - 1}")), seconds=60)
        assert isinstance(seen, Instance)
        assert await full_catalog.folded() == [(n, "registered") for n in range(1, MANY + 2)]
        assert "set aside" not in daemon.stderr
        assert "Traceback" not in daemon.stderr
    await bus.close()


class FullBroker:
    """An adsumd whose broker lies on a small disk; `repair` is what somebody has to do beside making room."""

    def __init__(self, disk: Disk, daemon: AdsumDaemon, repair: Callable[[], Awaitable[None]]) -> None:
        self.disk, self.daemon, self.repair = disk, daemon, repair


@asynccontextmanager
async def embedded_on_a_small_disk(tmp_path: Path) -> AsyncIterator[FullBroker]:
    """The broker is the daemon's own; all of the data folder is on the disk, the catalog too."""

    async def nothing() -> None:
        """adsumd does it."""

    with small_disk(tmp_path / "data", 16) as disk:
        async with adsumd(disk.folder, *FREE) as daemon:
            yield FullBroker(disk, daemon, nothing)


@asynccontextmanager
async def external_on_a_small_disk(tmp_path: Path) -> AsyncIterator[FullBroker]:
    """The broker is somebody else's, who starts it again as docs/operations.md says."""
    with small_disk(tmp_path / "server" / "store", 16) as disk:
        server = await Server(tmp_path / "server").start()

        async def start_again() -> None:
            await server.kill()
            await server.start()

        try:
            async with adsumd(tmp_path / "data", "--nats", server.url) as daemon:
                yield FullBroker(disk, daemon, start_again)
        finally:
            await server.stop()


@pytest.fixture(params=["embedded", pytest.param("external", marks=pytest.mark.long)])
async def full(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FullBroker]:
    """A broker that can be made full."""
    make = embedded_on_a_small_disk if request.param == "embedded" else external_on_a_small_disk
    async with make(tmp_path) as made:
        yield made


async def acknowledged_until_full(bus: Broker) -> dict[int, str]:
    """(sequence, term) of every registration that was acknowledged before one was not."""
    stored: dict[int, str] = {}
    for n in range(1000):
        service = Service(bus, key(f"while-{n}"), heartbeat=5, ttl=300)
        try:
            sequence = await service.register()
            stored[sequence] = service.term
        except BrokerUnavailable:
            return stored
    raise AssertionError("the disk was never full")


async def test_the_brokers_disk_is_full(full: FullBroker) -> None:
    """Nothing acknowledged is lost, who wants to register waits, nobody is buried, and all goes on by itself."""
    bus = await connected(full.daemon.url)
    async with (
        connect(full.daemon.url) as registry,
        registry.directory("orders") as orders,
        registry.register("orders", port=1, id="steady", heartbeat=1, ttl=5) as steady,
    ):
        await until(lambda: orders.get("orders", "steady"))
        term = steady.term
        full.disk.fill()
        stored = await acknowledged_until_full(bus)
        async with registry.register("orders", port=2, id="waiting", wait=0.1) as waiting:
            assert waiting.state == "registering"
            full.disk.empty()
            await full.repair()
            await waiting.registered(60)
            wanted = {"steady", "waiting", *(f"while-{n}" for n in range(len(stored)))}
            await until(lambda: {one.id for one in orders.instances()} & wanted, lambda ids: ids == wanted, 30)
            await until(lambda: orders.state, lambda state: state == "live", 30)
            assert steady.term == term
        for sequence, expected in stored.items():
            raw = await bus.message_at(EVENTS, sequence)
            assert raw is not None, f"an acknowledged event at {sequence} is lost"
            assert decode_event(raw.data or b"").term == expected
        assert not any(b'"expired"' in message for message in await whole_log(bus))
    assert "Traceback" not in full.daemon.stderr
    await bus.close()


async def whole_log(bus: Broker) -> list[bytes]:
    """Every message of the log."""
    found: list[bytes] = []
    async with StreamReader(bus, EVENTS) as reader:
        while batch := await reader.to_end():
            found += [message.data for message in batch]
    return found


@pytest.mark.long
async def test_an_embedded_broker_is_started_again_only_once_its_disk_takes_writes(tmp_path: Path) -> None:
    """While the disk is full the same process stays, and adsumd says what is wrong; then it is another one, once."""
    async with embedded_on_a_small_disk(tmp_path) as full:
        [child] = psutil.Process(full.daemon.process.pid).children()
        bus = await connected(full.daemon.url)
        full.disk.fill()
        await acknowledged_until_full(bus)
        await until(lambda: NO_ROOM in full.daemon.stderr, seconds=20)
        assert "make room on the disk" in full.daemon.stderr
        await asyncio.sleep(RESTART_AFTER + 4)  # so long it would not wait if there were room
        assert child.is_running(), full.daemon.stderr
        full.disk.empty()
        await until(lambda: "starting it again" in full.daemon.stderr, seconds=30)
        await until(lambda: "the embedded broker: works again" in full.daemon.stderr, seconds=30)
        [again] = psutil.Process(full.daemon.process.pid).children()
        assert again.pid != child.pid
        await Service(bus, key("after"), heartbeat=5, ttl=300).register()
        await until(lambda: topology(bus, key("after")), seconds=20)
        assert full.daemon.stderr.count("starting it again") == 1
        await bus.close()


@pytest.mark.parametrize("what", ["everything", pytest.param("the broker alone", marks=pytest.mark.long)])
async def test_a_start_on_a_full_disk_is_refused_in_one_line(tmp_path: Path, what: str) -> None:
    """And the same folder serves once there is room."""
    data = tmp_path / "data"
    with small_disk(data if what == "everything" else data / "nats", 8) as disk:
        disk.fill()
        line = await refused(data, *FREE)
        assert NO_ROOM in line or "full" in line
        disk.empty()
        async with adsumd(data, *FREE) as daemon:
            bus = await connected(daemon.url)
            await Service(bus, key("a"), heartbeat=5, ttl=300).register()
            await until(lambda: topology(bus, key("a")))
            await bus.close()
