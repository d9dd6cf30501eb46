"""A trim where not all goes together: two commands at once, and a copy of the log that hears of things late."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adsum.events import subjects, trimming
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.errors import BrokerUnavailable
from adsum.events.exporting import Exported, Span, export
from adsum.events.reader import Message, ReaderLost
from adsum.events.streams import EVENTS, NotesChanged, ensure_streams
from adsum.events.trimming import TrimUnfinished, finish, trim
from tests.audit.logs import in_file, whole_log
from tests.audit.test_trim import notes, streams_are_there
from tests.cluster import ELECTIONS, Node, cluster
from tests.making import key
from tests.making import registered as born
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until


@pytest.fixture
async def bus(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with an empty log."""
    server = await Server(tmp_path / "server").start()
    connection = await connected(server.url)
    await ensure_streams(connection)
    yield connection
    await connection.close()
    await server.stop()


async def say(bus: Broker, count: int) -> None:
    """So many events."""
    for at in range(count):
        await bus.store(EVENTS, subjects.event(key(f"o-{at}")), encode(born()), {})


async def up_to(bus: Broker, last: int, file: Path) -> Exported:
    """The log up to a sequence, in a file."""
    return await export(bus, str(file), Span(ends=lambda message: message.sequence > last), lambda _: None)


async def test_a_trim_that_begins_while_another_one_ends(
    tmp_path: Path, bus: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked at the log before the other one touched it: it stops, and what no file holds stays."""
    await say(bus, 30)
    before = await whole_log(bus)
    first, second = await up_to(bus, 10, tmp_path / "first"), await up_to(bus, 5, tmp_path / "second")
    look = trimming._look
    looks = 0

    async def other_first(broker: Broker) -> object:
        nonlocal looks
        looks += 1
        seen = await look(broker)
        if looks == 1:
            await trim(broker, first)
        return seen

    monkeypatch.setattr(trimming, "_look", other_first)
    with pytest.raises(NotesChanged):
        await trim(bus, second)
    monkeypatch.undo()
    assert in_file(tmp_path / "first")[1] + await whole_log(bus) == before
    assert (await notes(bus)).trimmed == 10
    await say(bus, 1)


async def test_a_trim_that_is_finished_by_another_command_while_it_is_at_work(
    tmp_path: Path, bus: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events were taken meanwhile that it has not counted: it removes nothing."""
    await say(bus, 30)
    file = await up_to(bus, 10, tmp_path / "file")
    check = trimming._after

    async def finished(broker: Broker, last: int) -> int:
        kept = await check(broker, last)
        await finish(broker)
        await say(broker, 5)
        return kept

    monkeypatch.setattr(trimming, "_after", finished)
    with pytest.raises(NotesChanged):
        await trim(bus, file)
    assert [message.sequence for message in await whole_log(bus)] == list(range(1, 36))
    assert (await notes(bus)).trimmed == 0


@pytest.mark.long
async def test_a_copy_that_stands_still_in_the_middle_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just before the others remove, one server is paused. Nothing is taken before it has done as they did; else it
    would have the limit still when it stores what came afterwards, and be the one that all read from later."""
    monkeypatch.setattr(trimming, "APPLIED_WITHIN", 3.0)
    (tmp_path / "cluster").mkdir()
    async with cluster(tmp_path / "cluster") as nodes:
        bus = await connected(",".join(node.url for node in nodes))
        await until(lambda: streams_are_there(bus, 3), seconds=ELECTIONS)
        await say(bus, 60)
        file = await up_to(bus, 20, tmp_path / "file")
        paused = await follower(bus, nodes)
        check = trimming._check

        def pause_after(*arguments: object) -> None:
            check(*arguments)  # type: ignore[arg-type]
            nodes[paused].signal(signal.SIGSTOP)

        monkeypatch.setattr(trimming, "_check", pause_after)
        with pytest.raises((TrimUnfinished, BrokerUnavailable)) as refusal:
            await trim(bus, file)
        if isinstance(refusal.value, TrimUnfinished):  # else the one that is paused is who leads the cluster
            assert "adsum trim --finish" in str(refusal.value)
        with pytest.raises(BrokerUnavailable):
            await say(bus, 1)
        nodes[paused].signal(signal.SIGCONT)

        async def finishes() -> str:
            try:
                await finish(bus)
            except (TrimUnfinished, BrokerUnavailable) as error:
                return str(error)
            return "done"

        await until(finishes, "done".__eq__, seconds=ELECTIONS)

        async def says() -> str:
            try:
                await say(bus, 100 - (await whole_log(bus))[-1].sequence)
            except (ReaderLost, BrokerUnavailable) as error:  # who leads may be elected just now
                return str(error)
            return "all"

        await until(says, "all".__eq__, seconds=ELECTIONS)
        told, trimmed = await whole_log(bus), (await notes(bus, 3)).trimmed
        assert trimmed == 20 or not isinstance(refusal.value, TrimUnfinished)
        assert [message.sequence for message in told] == list(range(trimmed + 1, 101))
        assert await as_told_by(bus, paused) == told
        await bus.close()


async def follower(bus: Broker, nodes: list[Node]) -> int:
    """The number of a server that leads the log neither for itself nor, as far as one can tell, for this connection."""
    info = await bus.stream_info(EVENTS)
    assert info is not None
    assert info.cluster is not None
    used = str(bus._client.connected_url.netloc) if bus._client.connected_url else ""
    names = [str(peer.name) for peer in info.cluster.replicas or ()]
    return next(int(name[1:]) for name in names if not nodes[int(name[1:])].url.endswith(used))


async def as_told_by(bus: Broker, number: int) -> list[Message]:
    """The log as one server has it: that one leads it now."""
    asked = json.dumps({"placement": {"preferred": f"n{number}"}}).encode()

    async def leads() -> str | None:
        try:
            info = await bus.stream_info(EVENTS)
            leader = info.cluster.leader if info is not None and info.cluster is not None else None
            if leader is not None and leader != f"n{number}":
                await bus.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{EVENTS}", asked, 5)
        except BrokerUnavailable as error:
            return str(error)
        return leader

    await until(leads, f"n{number}".__eq__, seconds=ELECTIONS)
    return await whole_log(bus)
