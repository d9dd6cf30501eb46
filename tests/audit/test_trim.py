"""`adsum trim`: the beginning of the log goes into a file, and nothing else goes, stays away or comes back by that."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.clients import connect
from adsum.clients.cli import trim as command
from adsum.clients.cli.options import Where
from adsum.events import subjects, trimming
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.codec import encode
from adsum.events.config import Config
from adsum.events.errors import BrokerRefused, BrokerUnavailable
from adsum.events.exporting import Exported, Span, export
from adsum.events.lifecycle import Expired, Lapsed, Registered, Updated
from adsum.events.log import last_word
from adsum.events.notes import Notes, notes_of
from adsum.events.questions import Moment
from adsum.events.reader import Message
from adsum.events.signals import Instance
from adsum.events.streams import EVENTS, NotesChanged, compare, definitions, ensure_streams, note
from adsum.projector.errors import LogChanged
from adsum.projector.sqlite import SQLiteCatalog
from adsum.projector.writer import Writer
from tests.audit.logs import head_of, in_file, whole_log
from tests.audit.rows import rows
from tests.cli.programs import Adsum
from tests.cluster import cluster
from tests.daemons import Service, adsumd, events_of, topology
from tests.faults.looking import is_gone, ticks
from tests.faults.owners import one, owner
from tests.faults.test_log_changed import Catalogs, registered
from tests.faults.test_other_log import live_with
from tests.making import key
from tests.making import registered as born
from tests.projector.test_daemon import connected, refused
from tests.servers import Server
from tests.waiting import until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A broker."""
    started = await Server(tmp_path / "server").start()
    yield started
    await started.stop()


@pytest.fixture
async def bus(server: Server) -> AsyncIterator[Broker]:
    """A connection to it."""
    connection = await connected(server.url)
    yield connection
    await connection.close()


@pytest.fixture
def young(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a test all is young: nothing stays for that."""
    monkeypatch.setattr(command, "YOUNGEST", 0.0)


async def trimmed(url: str, before: int, file: Path) -> Exported | None:
    """What the command does, in this process."""
    where = Where(BrokerSettings(url=url), "default", 10, Config())
    return await command._trim(where, Moment(revision=before), str(file))


async def notes(bus: Broker, replicas: int = 1) -> Notes:
    """What the log says of itself; its settings are as they have to be."""
    info = await bus.stream_info(EVENTS)
    assert info is not None
    assert compare(info.config, definitions(replicas)[0]) == []
    return notes_of(info)


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
async def test_who_lives_lives_on_and_who_died_stays_dead(
    tmp_path: Path, server: Server, bus: Broker, catalogs: Catalogs
) -> None:
    """Owners keep their lives and may speak, the reaper judges who falls silent, an operator drains; caches see no
    change. The catalog forgets what was before, says so, and goes on; an empty one is refused with its remedy."""
    dsn, file = await catalogs("catalog"), tmp_path / "trimmed.jsonl.gz"
    options = ("--nats", server.url, "--catalog", dsn)
    async with AsyncExitStack() as stack:
        adsum = Adsum(server.url)
        registry = await stack.enter_async_context(connect(server.url))
        async with adsumd(tmp_path / "data", *options):
            process = await stack.enter_async_context(owner(server.url, one("o-1"), one("o-2")))
            terms = {id: await process.reaches(id, "registered") for id in ("o-1", "o-2")}
            silent, dead = Service(bus, key("silent")), Service(bus, key("dead"), heartbeat=100, ttl=300)
            await dead.register()
            await dead.deregister()
            async with silent.beating():
                await silent.register()
                cache = await stack.enter_async_context(registry.directory("orders"))
                await live_with([cache], {"o-1", "o-2", "silent"})
                changes = cache.changes(initial=False)
                before = await whole_log(bus)
                await ticks(bus, 3)  # the leader told that it has folded and announced all that
                done = await trimmed(server.url, before[-1].sequence, file)
                assert done is not None
                through = done.trailer.last
                assert through == before[-2].sequence
                assert in_file(file)[1] == before[:-1]
                after = await whole_log(bus)
                assert after[0] == before[-1]
                words = [await last_word(bus, key(id)) for id in terms]
                assert [type(word.event) for word in words if word] == [Updated, Updated]
                assert await notes(bus) == Notes(
                    epoch=done.header.epoch, trimmed=through, trimmed_head=bytes.fromhex(head_of(before[:-1]))
                )
                process.tell("o-1", "update", weight=3.0)
                assert (await process.did("o-1", "update"))["in_log"]
                changed = await asyncio.wait_for(anext(changes), 10)
                assert (changed.kind, changed.instance.id, changed.instance.weight) == ("changed", "o-1", 3.0)
                assert (await adsum("drain", "orders", "o-2")).code == 0
                await until(lambda: topology(bus, key("o-2")), lambda told: is_mode(told, "draining"))
            await until(lambda: topology(bus, key("silent")), is_gone, seconds=30)
            verdicts = [type(event) for event in await events_of(bus, key("silent"))]
            assert verdicts[-2:] == [Lapsed, Expired]
            assert {id: process.states(id)[-1] for id in terms} == {id: ("registered", terms[id]) for id in terms}
            await until(lambda: rows(dsn, "SELECT complete_from FROM checkpoint"), [(through + 1,)].__eq__)
            await until(lambda: rows(dsn, "SELECT min(sequence) FROM events"), lambda seen: seen[0][0] > through)
            await until(
                lambda: rows(dsn, f"SELECT count(*) FROM history WHERE ended_revision <= {through}"), [(0,)].__eq__
            )
            assert len(await rows(dsn, "SELECT instance FROM instances")) == 2
        async with adsumd(tmp_path / "data", *options):
            await live_with([cache], {"o-1", "o-2"})
        line = await refused(tmp_path / "empty", "--nats", server.url, "--catalog", await catalogs("empty"))
        assert f"the log was trimmed up to {through}, the catalog stands at 0" in line
        assert "adsum rebuild --into DSN --base FILE" in line
        rest = await export(bus, str(tmp_path / "rest.jsonl"), Span(), lambda _: None)
        whole = before[:-1] + await whole_log(bus)
        assert (rest.header.first, rest.header.head) == (through + 1, done.trailer.head)
        assert rest.trailer.head == head_of(whole)


def is_mode(told: object, mode: str) -> bool:
    return isinstance(told, Instance) and told.mode == mode


@pytest.fixture
async def brokers(tmp_path: Path, replicas: int) -> AsyncIterator[str]:
    """Where brokers are that keep each stream in so many copies."""
    if replicas == 1:
        server = await Server(tmp_path / "server").start()
        yield server.url
        await server.stop()
        return
    (tmp_path / "cluster").mkdir()
    async with cluster(tmp_path / "cluster") as nodes:
        yield ",".join(node.url for node in nodes)


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("replicas", [1, pytest.param(3, marks=pytest.mark.long)])
async def test_nothing_is_lost_that_arrives_meanwhile(tmp_path: Path, brokers: str, replicas: int) -> None:
    """While four authors speak as fast as they can the log is trimmed again and again: what the files and the log hold
    is every event that was acknowledged, once, at its own sequence; each file goes on where the one before ended."""
    said: dict[int, bytes] = {}
    going = True

    async def speak(author: int) -> None:
        count = 0
        while going:
            count += 1
            data = encode(born())
            try:
                subject = subjects.event(key(f"o-{author}-{count % 20}"))
                said[await bus.store(EVENTS, subject, data, {})] = data
            except BrokerUnavailable:
                await asyncio.sleep(0.01)

    bus = await connected(brokers)
    options = ("--nats", brokers, "--replicas", str(replicas))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        if replicas > 1:
            await until(lambda: streams_are_there(bus, replicas), seconds=60)
        daemon = await stack.enter_async_context(adsumd(tmp_path / "data", *options))
        await until(lambda: "leading from" in daemon.stderr, seconds=30)
        authors = [asyncio.create_task(speak(author)) for author in range(4)]
        files: list[Path] = []
        for at in range(4):
            most = max(said, default=0) + 200
            await until(lambda most=most: max(said, default=0), lambda last, most=most: last > most, seconds=60)
            await ticks(bus, 2)
            file = tmp_path / f"{at}.jsonl"
            if await trimmed(brokers, max(said) - 50, file) is not None:
                files.append(file)
        going = False
        await asyncio.gather(*authors)
        removed = [in_file(file) for file in files]
        assert len(removed) >= 2
        left = await whole_log(bus)
        found = [message for _, messages, _ in removed for message in messages] + left
        sequences = [message.sequence for message in found]
        assert sequences == list(range(1, sequences[-1] + 1))
        byte = {message.sequence: message.data for message in found}
        assert {sequence: byte[sequence] for sequence in said} == said
        for (_, _, before), (header, _, _) in itertools.pairwise(removed):
            assert (header.first, header.head) == (before.last + 1, before.head)
        assert (await notes(bus, replicas)).trimmed == removed[-1][2].last < left[0].sequence


async def streams_are_there(bus: Broker, replicas: int) -> bool:
    """Whether a cluster that just started has the streams."""
    try:
        await ensure_streams(bus, replicas)
    except (BrokerUnavailable, BrokerRefused):
        return False
    return True


async def test_a_trim_that_was_cut_off_has_lost_nothing(tmp_path: Path, server: Server, bus: Broker) -> None:
    """It leaves a log that takes nothing: services wait, adsumd and status name the remedy, and the remedy is one."""
    adsum = Adsum(server.url)
    await ensure_streams(bus)
    service = Service(bus, key("a"))
    await service.register()
    before, was = await whole_log(bus), await notes(bus)
    await note(bus, was._replace(trimming="a host, process 1"), subjects=["adsum.trim"], max_msgs=1)
    with pytest.raises(BrokerUnavailable):
        await service.deregister()
    line = await refused(tmp_path / "data", "--nats", server.url)
    assert "the log takes nothing: a trim is at work on it, or was cut off (a host, process 1)" in line
    assert "adsum trim --finish" in line
    status = await adsum("status")
    assert (status.code, "adsum trim --finish" in status.out) == (1, True)
    again = await adsum("trim", "--before", "@1", "--export", str(tmp_path / "x"))
    assert (again.code, "adsum trim --finish" in again.err) == (1, True)
    assert (await adsum("trim", "--finish")).code == 0
    assert await notes(bus) == was
    assert await whole_log(bus) == before
    await service.deregister()


async def test_what_cannot_be_trimmed(tmp_path: Path, server: Server, bus: Broker) -> None:
    """No adsumd, a file that is there, options that are missing, events of the last hour: the log stays as it is."""
    adsum, file = Adsum(server.url), tmp_path / "x.jsonl"
    await ensure_streams(bus)
    arguments = ("trim", "--before", "@2", "--export", str(file))
    result = await adsum(*arguments)
    assert (result.code, "no adsumd leads" in result.err) == (1, True)
    async with adsumd(tmp_path / "data", "--nats", server.url):
        await registered(bus, "a", "b", "c")
        await ticks(bus, 3)
        before = await whole_log(bus)
        result = await adsum(*arguments)
        assert (result.code, "nothing is to be removed" in result.err) == (0, True)
        assert not file.exists()
        file.write_text("the one of yesterday")
        result = await adsum(*arguments)
        assert (result.code, "is there already" in result.err) == (1, True)
        assert file.read_text() == "the one of yesterday"
        assert (await adsum("trim", "--before", "@2")).code == 2
        assert await whole_log(bus) == before
    assert (await notes(bus)).trimmed == 0


def test_what_stays_is_what_was_said_from_a_moment_on() -> None:
    said = [Message(subjects.event(key()), b"", at, float(at)) for at in range(1, 6)]
    for before, staying in (
        (Moment(revision=3), [3, 4, 5]),
        (Moment(time=3.0), [3, 4, 5]),
        (Moment(time=3.5), [4, 5]),
        (Moment(revision=0), [1, 2, 3, 4, 5]),
        (Moment(), [5]),  # now: all but what is too young, or not folded yet
    ):
        assert [message.sequence for message in said if command._Ends(before, 4, 9.0)(message)] == staying
    assert [message.sequence for message in said if command._Ends(Moment(), 9, 4.0)(message)] == [4, 5]


@pytest.mark.usefixtures("young")
async def test_a_catalog_that_had_not_folded_what_was_removed_is_refused(
    tmp_path: Path, server: Server, bus: Broker
) -> None:
    """At its start, and when it meets the gap while it reads; one that ends just where the log now begins goes on."""
    catalog, copy = tmp_path / "catalog.db", tmp_path / "copy.db"
    async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", f"sqlite:///{catalog}"):
        await registered(bus, "a", "b")
    shutil.copy(catalog, copy)
    async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", f"sqlite:///{catalog}"):
        await registered(bus, "c", "d", "e")
        await ticks(bus, 3)
        assert await trimmed(server.url, 3, tmp_path / "one") is not None
    async with adsumd(tmp_path / "older", "--nats", server.url, "--catalog", f"sqlite:///{copy}") as daemon:
        assert not daemon.line.endswith("revision=2")  # it stood at 2, and has read on
    epoch, last = (await notes(bus)).epoch, (await whole_log(bus))[-1]
    empty = SQLiteCatalog(tmp_path / "empty.db")
    await empty.open()
    writer = Writer(bus, empty, epoch, lambda _: None)
    try:
        with pytest.raises(LogChanged, match="the log was trimmed up to 2, the catalog stands at 0"):
            await writer._read([Message(last.subject, last.data, last.sequence, last.time)])
    finally:
        await empty.close()


@pytest.mark.usefixtures("young")
async def test_a_publish_that_was_made_for_a_subject_that_nobody_had_used_yet(
    tmp_path: Path, server: Server, bus: Broker
) -> None:
    """What the hour is for: once the last word on an id that is gone was removed, a late first word would be taken."""
    async with adsumd(tmp_path / "data", "--nats", server.url):
        gone = Service(bus, key("gone"), heartbeat=100, ttl=300)
        await gone.register()
        await gone.deregister()
        await registered(bus, "next")
        await ticks(bus, 3)
        assert await trimmed(server.url, 3, tmp_path / "one") is not None
        assert await last_word(bus, key("gone")) is None
        ghost = Service(bus, key("gone"))
        await ghost.register()  # as an old process would have, had its publish waited for more than an hour
        await until(lambda: topology(bus, key("gone")), is_gone, seconds=30)
        assert [type(event) for event in await events_of(bus, key("gone"))] == [Registered, Lapsed, Expired]


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("other", ["finish", "trim"])
async def test_of_two_that_trim_at_once_nothing_goes_that_no_file_holds(
    tmp_path: Path, server: Server, bus: Broker, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """Between the count and the removal somebody finishes the trim, or does one, and services speak: it is given up."""
    after = trimming._after
    async with adsumd(tmp_path / "data", "--nats", server.url):
        await registered(bus, "a", "b", "c", "d", "e")
        await ticks(bus, 3)
        before = await whole_log(bus)

        async def meanwhile(broker: Broker, last: int) -> int:
            count = await after(broker, last)
            monkeypatch.setattr(trimming, "_after", after)
            await trimming.finish(broker)
            if other == "trim":
                assert await trimmed(server.url, 3, tmp_path / "other") is not None
            await registered(bus, "f", "g")
            return count

        monkeypatch.setattr(trimming, "_after", meanwhile)
        with pytest.raises(NotesChanged):
            await trimmed(server.url, 4, tmp_path / "one")
        held = in_file(tmp_path / "other")[1] if other == "trim" else []
        left = await whole_log(bus)
        assert (held + left)[: len(before)] == before
        assert [one.sequence for one in held + left] == list(range(1, left[-1].sequence + 1))
        assert {subjects.event(key(name)) for name in "fg"} <= {one.subject for one in left}
        assert (await notes(bus)).trimmed == len(held)
