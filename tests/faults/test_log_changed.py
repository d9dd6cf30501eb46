"""Row 18: a log that is not the one its reader knew is refused, and after the remedy everybody agrees with it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from adsum.clients import Directory, connect
from adsum.events.broker import Broker
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, Event, Health, HealthChanged
from adsum.events.log import last_word, say
from adsum.events.names import Key
from adsum.events.streams import EVENTS, ensure_streams, read_epoch
from tests.daemons import AdsumDaemon, Service, adsumd, topology
from tests.databases import PostgresServer
from tests.making import OWNER, key
from tests.projector.test_daemon import connected, refused
from tests.servers import Server
from tests.waiting import until

Catalogs: TypeAlias = Callable[[str], Awaitable[str]]

LONG = pytest.mark.long


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A broker whose store can be taken from under it."""
    started = await Server(tmp_path / "server").start()
    yield started
    await started.stop()


@pytest.fixture
def catalogs(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> Catalogs:
    """Gives the DSN of an empty catalog of the test's dialect, as often as it is asked."""

    async def make(name: str) -> str:
        if dialect == "sqlite":
            return f"sqlite:///{tmp_path / name}.db"
        databases: PostgresServer = request.getfixturevalue("postgres_server")
        return databases.dsn(await databases.clone())

    return make


def options(server: Server, dsn: str) -> tuple[str, ...]:
    """An adsumd on this broker and this catalog."""
    return "--nats", server.url, "--catalog", dsn


async def registered(bus: Broker, *ids: str) -> None:
    """These are registered and announced."""
    for id in ids:
        await Service(bus, key(id), heartbeat=5, ttl=300).register()
    await until(lambda: topology(bus, key(ids[-1])), seconds=15)


async def say_next(bus: Broker, wanted: Key, make: Callable[[str], Event]) -> int:
    """Say what `make` gives for the term that lives; the event's sequence."""
    word = await last_word(bus, wanted)
    assert word is not None
    assert word.event is not None
    return await say(bus, wanted, make(word.event.term), word.sequence)


async def say_health(bus: Broker, wanted: Key, health: Health) -> int:
    """A life says how it is."""
    return await say_next(bus, wanted, lambda term: HealthChanged(id=new_id(), term=term, by=OWNER, health=health))


def store_of(server: Server) -> Path:
    """Where the broker keeps all."""
    return server.folder / "store"


async def copy_store(server: Server, to: Path) -> None:
    """A copy of all that the broker holds, taken while it is down."""
    await server.kill()
    shutil.copytree(store_of(server), to)
    await server.start()


async def put_back(server: Server, copy: Path) -> None:
    """The copy takes the place of what the broker holds."""
    await server.kill()
    shutil.rmtree(store_of(server))
    shutil.copytree(copy, store_of(server))
    await server.start()


async def ends_and_says(daemon: AdsumDaemon, *wanted: str) -> None:
    """A running daemon ends by itself with one line that holds all of these."""
    assert await daemon.ended(within=40) == 1
    [line] = [line for line in daemon.stderr.splitlines() if line.startswith("adsumd: ")]
    for text in wanted:
        assert text in line
    assert "Traceback" not in daemon.stderr


@pytest.mark.parametrize(
    ("dialect", "since", "told"),
    [
        pytest.param("sqlite", "", "the log ends at 1, the catalog stands at 3", marks=LONG),
        pytest.param("postgresql", "", "the log ends at 1, the catalog stands at 3", marks=LONG),
        pytest.param("sqlite", "xy", "another event", marks=LONG),
        pytest.param("postgresql", "xy", "another event", marks=LONG),
        pytest.param("sqlite", "xyzw", "another event"),
        pytest.param("postgresql", "xyzw", "another event", marks=LONG),
    ],
)
async def test_row_18_an_older_copy_put_back_is_refused(
    tmp_path: Path, server: Server, catalogs: Catalogs, since: str, told: str
) -> None:
    """Shorter, as long again or longer: same epoch, same creation time; by its event at the checkpoint it is known."""
    dsn, copy = await catalogs("catalog"), tmp_path / "copy"
    bus = await connected(server.url)
    async with adsumd(tmp_path / "data", *options(server, dsn)):
        await registered(bus, "a")
        await copy_store(server, copy)
        await bus.ready(20)
        await registered(bus, "b", "c")
    await put_back(server, copy)
    await bus.ready(20)
    if since:
        async with adsumd(tmp_path / "other", *options(server, await catalogs("other"))):
            await registered(bus, *since)
    line = await refused(tmp_path / "data", *options(server, dsn))
    assert told in line
    assert "--new-epoch" in line
    await bus.close()


@pytest.mark.parametrize("dialect", [pytest.param("sqlite", marks=LONG), pytest.param("postgresql", marks=LONG)])
async def test_row_18_acknowledged_writes_lost_in_a_power_failure(
    tmp_path: Path, server: Server, catalogs: Catalogs
) -> None:
    """The end of the log was never on the disk: the running daemon refuses it when the broker is back, and the next."""
    dsn = await catalogs("catalog")
    bus = await connected(server.url)
    async with adsumd(tmp_path / "data", *options(server, dsn)) as daemon:
        await registered(bus, "a", "b", "c")
        await server.kill()
        messages = store_of(server) / "jetstream" / "$G" / "streams" / EVENTS / "msgs"
        (messages / "index.db").unlink(missing_ok=True)
        [block] = messages.glob("*.blk")
        with block.open("r+b") as file:
            file.truncate(block.stat().st_size - 100)
        await server.start()
        await ends_and_says(daemon, "the log ends at 2, the catalog stands at 3", "--new-epoch")
    assert "the log ends at 2" in await refused(tmp_path / "data", *options(server, dsn))
    await bus.close()


@pytest.mark.parametrize("dialect", [pytest.param("sqlite", marks=LONG), pytest.param("postgresql", marks=LONG)])
async def test_row_18_a_log_that_was_deleted_and_made_anew(tmp_path: Path, server: Server, catalogs: Catalogs) -> None:
    """Deleted under a running daemon it ends; a new log is of another epoch, and the catalog of the old one refused."""
    dsn = await catalogs("catalog")
    bus = await connected(server.url)
    async with adsumd(tmp_path / "data", *options(server, dsn)) as daemon:
        await registered(bus, "a", "b")
        before = await read_epoch(bus)
        await bus._js.delete_stream(EVENTS)
        await ends_and_says(daemon, EVENTS)
    await ensure_streams(bus, epochs_seen=(before,))
    line = await refused(tmp_path / "data", *options(server, dsn))
    assert f"the catalog was folded from epoch {before}" in line
    assert "with an empty database (--catalog)" in line
    await bus.close()


def seen_by(orders: Directory) -> dict[str, str]:
    """(id, health) of all that a cache shows."""
    return {one.id: one.health for one in orders.instances()}


@asynccontextmanager
async def older_copy_under_a_living_cache(
    tmp_path: Path, server: Server, dsn: str, lost: int
) -> AsyncIterator[tuple[Broker, Directory]]:
    """A cache and a registered service live through it: the log goes back by one event, or three, and is refused.

    The cache knows `kept` as critical (then `left` as gone, and `later`); the log that was put back does not.
    """
    bus, copy = await connected(server.url), tmp_path / "copy"
    async with (
        connect(server.url) as registry,
        registry.register("orders", port=1, id="owner", heartbeat=1, ttl=15, wait=0) as owner,
        registry.directory("orders") as orders,
    ):
        async with adsumd(tmp_path / "data", *options(server, dsn)) as daemon:
            await owner.registered(20)
            assert await orders.loaded(20)
            await registered(bus, "kept", "left")
            await copy_store(server, copy)
            await bus.ready(20)
            await say_health(bus, key("kept"), "critical")
            wanted = {"owner": "passing", "kept": "critical", "left": "passing"}
            if lost > 1:
                await say_next(bus, key("left"), lambda term: Deregistered(id=new_id(), term=term, by=OWNER))
                await registered(bus, "later")
                wanted = {"owner": "passing", "kept": "critical", "later": "passing"}
            await until(lambda: seen_by(orders), lambda seen: seen == wanted, seconds=20)
            await put_back(server, copy)
            await bus.ready(20)
            await ends_and_says(daemon, "--new-epoch")
        yield bus, orders
    await bus.close()


@pytest.mark.parametrize("lost", [1, pytest.param(3, marks=LONG)])
@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgresql", marks=LONG)])
async def test_row_18_after_the_remedy_every_cache_agrees(
    tmp_path: Path, server: Server, catalogs: Catalogs, lost: int
) -> None:
    """Also where the other log says something else at the very revision that the cache knows.

    It said `critical` at a sequence where the other log will say `warning`: by revision alone nobody could tell.
    """
    async with older_copy_under_a_living_cache(tmp_path, server, await catalogs("catalog"), lost) as (bus, orders):
        before = orders.get("orders", "kept")
        assert before is not None
        assert await say_health(bus, key("kept"), "warning") == before.revision
        fresh = options(server, await catalogs("fresh"))
        async with adsumd(tmp_path / "data", *fresh, "--new-epoch"):
            wanted = {"owner": "passing", "kept": "warning", "left": "passing"}
            await until(lambda: seen_by(orders), lambda seen: seen == wanted, seconds=30)
            await until(lambda: orders.state, lambda state: state == "live", seconds=20)
            epoch = await read_epoch(bus)
            assert epoch > before.epoch
            await until(partial(agrees, bus, orders, wanted, epoch), seconds=20)
        async with adsumd(tmp_path / "data", *fresh):  # and it goes on without the option
            await registered(bus, "next")
            await until(lambda: seen_by(orders), lambda seen: seen == {**wanted, "next": "passing"}, seconds=20)


async def agrees(bus: Broker, orders: Directory, ids: Iterable[str], epoch: str) -> bool:
    """Whether the cache shows of each just what the topology holds, in this epoch."""
    told = [await topology(bus, key(id)) for id in ids]
    shown = [orders.get("orders", id) for id in ids]
    return shown == told and {one.epoch for one in shown if one is not None} == {epoch}


async def test_a_new_epoch_is_for_an_empty_catalog(tmp_path: Path, server: Server) -> None:
    """Left in a unit file the option changes nothing: the second start is refused, and the log is as it was."""
    dsn = f"sqlite:///{tmp_path / 'catalog.db'}"
    bus = await connected(server.url)
    async with adsumd(tmp_path / "data", *options(server, dsn), "--new-epoch"):
        await registered(bus, "a")
        epoch = await read_epoch(bus)
    line = await refused(tmp_path / "data", *options(server, dsn), "--new-epoch")
    assert "a new epoch is for an empty catalog" in line
    assert await read_epoch(bus) == epoch
    await bus.close()


async def test_a_catalog_of_an_older_state_catches_up(tmp_path: Path, server: Server) -> None:
    """The other way round is no fault: the catalog goes on from where its copy was taken."""
    catalog, copy = tmp_path / "catalog.db", tmp_path / "copy.db"
    bus = await connected(server.url)
    async with adsumd(tmp_path / "data", *options(server, f"sqlite:///{catalog}")):
        await registered(bus, "a")
    shutil.copy(catalog, copy)
    async with adsumd(tmp_path / "data", *options(server, f"sqlite:///{catalog}")):
        await registered(bus, "b", "c")
    async with adsumd(tmp_path / "data", *options(server, f"sqlite:///{copy}")) as daemon:
        assert daemon.line.endswith("revision=3")
    await bus.close()
