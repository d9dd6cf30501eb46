"""`adsum export` and `adsum import`: the log as a file and back, byte by byte, under a new epoch."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adsum.events import importing, subjects
from adsum.events.altering import delete_stream
from adsum.events.archive import Header
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.errors import BrokerUnavailable, LogUnfinished
from adsum.events.exporting import Span, export
from adsum.events.ids import is_uuid7
from adsum.events.log import last_word
from adsum.events.notes import TIME_HEADER, Notes, notes_of
from adsum.events.questions import Moment
from adsum.events.reader import Message
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, NotesChanged, compare, definitions, ensure_streams, read_epoch
from adsum.projector.record import instance_of
from tests.audit.logs import LONG_AGO, file_of, head_of, in_file, whole_log
from tests.cli.programs import Adsum
from tests.daemons import Service, adsumd
from tests.making import key, record, registered
from tests.projector.test_daemon import connected, refused
from tests.servers import Server
from tests.waiting import until


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Server]:
    """Another broker, which has no log."""
    server = await Server(tmp_path / "other").start()
    yield server
    await server.stop()


@pytest.fixture
async def bus(other: Server) -> AsyncIterator[Broker]:
    """A connection to it."""
    broker = await connected(other.url)
    yield broker
    await broker.close()


def event(sequence: int, id: str = "a", data: bytes | None = None) -> Message:
    """A message of long ago."""
    said = encode(registered()) if data is None else data
    return Message(subjects.event(key(id)), said, sequence, LONG_AGO + sequence)


ODD = [b"\xff\xfe", b"", b"{", b'{"a":\n1}', b"null", b'{"type":"registered"}' * 2000]
"""What anybody may have said in the log."""


async def test_the_log_goes_to_another_broker_and_is_the_same(
    adsum: Adsum, broker: Broker, other: Server, bus: Broker, tmp_path: Path
) -> None:
    """Sequences, times, subjects and bytes; the hash that both commands print is that of either log."""
    for at, data in enumerate([*ODD, encode(registered()), encode(registered())]):
        await broker.store(EVENTS, subjects.event(key(f"o-{at}")), data, {"Nats-Msg-Id": str(at)})
    await broker.store(EVENTS, "adsum.v1.Other.event.x\u00fc.%\x0b$", b"odd", {})
    before, file = await whole_log(broker), tmp_path / "log.jsonl.gz"
    out = await adsum("export", str(file), "--json")
    assert out.code == 0, out.err
    header, said, trailer = in_file(file)
    assert said == before
    assert out.json == {
        "file": str(file), "epoch": await read_epoch(broker), "namespace": None,
        "first": 1, "last": 9, "messages": 9, "head": head_of(before),
    }  # fmt: skip
    there = Adsum(other.url)
    result = await there("import", str(file), "--json")
    assert result.code == 0, result.err
    assert await whole_log(bus) == before
    assert result.json["head"] == trailer.head == head_of(before)
    assert result.json["was"] == header.epoch
    assert result.json["epoch"] == await read_epoch(bus) > header.epoch
    again = await there("export", str(tmp_path / "again.jsonl"))
    assert (again.code, in_file(tmp_path / "again.jsonl")[1]) == (0, before)
    assert trailer.head in again.out
    for wanted in definitions():
        info = await bus.stream_info(str(wanted.name))
        assert info is not None
        assert compare(info.config, wanted) == []


async def test_gaps_and_the_first_sequence_are_kept(other: Server, bus: Broker, tmp_path: Path) -> None:
    """A full disk leaves holes; what comes next goes on after the last one."""
    said = [event(7), event(8, "b"), event(12), event(4000, "c"), event(4001)]
    file = file_of(tmp_path / "log.jsonl", said)
    result = await Adsum(other.url)("import", str(file))
    assert result.code == 0, result.err
    assert await whole_log(bus) == said
    assert await Service(bus, key("new")).register() == 4002
    assert [one.sequence for one in await whole_log(bus)] == [7, 8, 12, 4000, 4001, 4002]
    assert await bus.message_at(EVENTS, 9) is None


async def test_the_time_of_an_imported_event_is_told_and_no_other_is_believed(
    other: Server, bus: Broker, tmp_path: Path
) -> None:
    """By the log's readers, the last word on an instance and `adsum log`; who claims a time later is not believed."""
    file, adsum = file_of(tmp_path / "log.jsonl", [event(1), event(2, "b")]), Adsum(other.url)
    assert (await adsum("import", str(file))).code == 0
    word = await last_word(bus, key("a"))
    assert word is not None
    assert word.time == LONG_AGO + 1
    claims = {TIME_HEADER: "1"}
    await bus.store(EVENTS, subjects.event(key("forger")), encode(registered()), claims)
    now = (await whole_log(bus))[-1].time
    assert now > LONG_AGO + 10_000_000
    word = await last_word(bus, key("forger"))
    assert word is not None
    assert abs(word.time - now) < 1e-3
    times = [one["time"] for one in await adsum.events()]
    assert times[:2] == ["2023-11-14T22:13:21.000Z", "2023-11-14T22:13:22.000Z"]
    assert times[2] > "2024"


async def test_what_claims_a_time_in_a_log_that_was_never_imported(broker: Broker) -> None:
    await broker.store(EVENTS, subjects.event(key("forger")), encode(registered()), {TIME_HEADER: "1"})
    [only] = await whole_log(broker)
    assert only.time > LONG_AGO


async def test_a_part_of_the_log(adsum: Adsum, broker: Broker, tmp_path: Path) -> None:
    """Since a revision or a time, or of one namespace: the hash goes on from the one before, and the file says so."""
    for at in range(6):
        wanted = key(f"o-{at}", namespace="prod" if at % 2 else "default")
        await broker.store(EVENTS, subjects.event(wanted), encode(registered()), {})
    log, file = await whole_log(broker), tmp_path / "part.jsonl"
    assert (await adsum("export", str(file), "--since", "@4")).code == 0
    header, said, trailer = in_file(file)
    assert (header.first, header.head, said) == (5, head_of(log[:4]), log[4:])
    assert trailer.head == head_of(log)
    begins = (
        (Moment(revision=99), []),
        (Moment(time=LONG_AGO), log),
        (Moment(time=log[1].time), log[2:]),
        (Moment(), []),
    )
    for since, wanted in begins:
        header, _ = await export(broker, str(file), Span(since), lambda _: None)
        assert in_file(file)[1] == wanted
        assert header.head == head_of([one for one in log if one not in wanted])
    assert (await adsum("--namespace", "prod", "export", str(file))).code == 0
    header, said, trailer = in_file(file)
    assert (header.namespace, header.first, said) == ("prod", 1, log[1::2])
    assert trailer.head == head_of(log[1::2])
    env = adsum.env | {"ADSUM_NAMESPACE": "prod"}
    assert (await adsum("export", str(file), env=env)).code == 0
    assert in_file(file)[1] == log
    result = await adsum("export", str(tmp_path / "none.jsonl"), "--since", "9999-01-01")
    assert (result.code, "9999-01-01" in result.err) == (2, True)
    assert not (tmp_path / "none.jsonl").exists()


async def test_to_standard_output_and_where_no_file_can_be(adsum: Adsum, broker: Broker, tmp_path: Path) -> None:
    await Service(broker, key("a")).register()
    result = await adsum("export", "-")
    assert result.code == 0
    assert [next(iter(line)) for line in result.lines] == ["adsum", "sequence", "end"]
    for bad in (str(tmp_path), str(tmp_path / "nowhere" / "log.jsonl")):
        result = await adsum("export", bad)
        assert (result.code, result.err.count("\n")) == (1, 1), result.err
        assert bad in result.err


async def test_a_log_that_is_not_empty_is_never_written_over(adsum: Adsum, broker: Broker, tmp_path: Path) -> None:
    file = file_of(tmp_path / "log.jsonl", [event(1)])
    await Service(broker, key("a")).register()
    before, epoch = await whole_log(broker), await read_epoch(broker)
    result = await adsum("import", str(file))
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "has a log already, with 1 events" in result.err
    assert (await whole_log(broker), await read_epoch(broker)) == (before, epoch)


async def test_a_file_that_is_not_whole_changes_nothing(other: Server, bus: Broker, tmp_path: Path) -> None:
    file = file_of(tmp_path / "log.jsonl", [event(1), event(2)])
    whole = file.read_bytes()
    for spoiled, told in ((whole[:-9], "cut off"), (whole.replace(b"8080", b"8081", 1), "not as it was written")):
        file.write_bytes(spoiled)
        result = await Adsum(other.url)("import", str(file))
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert told in result.err
        assert str(file) in result.err
        assert await bus.stream_info(EVENTS) is None


async def test_into_an_empty_log_and_not_under_an_adsumd(tmp_path: Path, adsum: Adsum, broker: Broker) -> None:
    """One that leads would follow the log that is taken away; once it is stopped its empty log gives way."""
    said = [event(1)]
    file, epoch = file_of(tmp_path / "log.jsonl", said), await read_epoch(broker)
    async with adsumd(tmp_path / "data", "--nats", adsum.url) as daemon:
        await until(lambda: "leading from" in daemon.stderr)
        result = await adsum("import", str(file))
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert "an adsumd leads here" in result.err
        assert await read_epoch(broker) == epoch
    assert (await adsum("import", str(file))).code == 0
    assert await read_epoch(broker) > epoch
    assert await whole_log(broker) == said


async def test_an_import_that_was_cut_off_is_no_log_and_is_begun_anew(
    tmp_path: Path, other: Server, bus: Broker
) -> None:
    """Killed in the middle: adsumd, services and commands refuse it with the remedy; nobody can write into it."""
    said = [event(at, f"o-{at % 50}", b'{"filling":"%s"}' % (b"x" * 400)) for at in range(1, 80_001)]
    file, adsum = file_of(tmp_path / "log.jsonl", said), Adsum(other.url)
    running = await adsum.start("import", str(file))
    await until(lambda: bus.stream_info(EVENTS), lambda info: info is not None and info.state.messages > 5000, 60)
    running.send(signal.SIGKILL)
    await running.code()
    line = await refused(tmp_path / "data", "--nats", other.url)
    assert "the log is not whole" in line
    assert "adsum import FILE" in line
    with pytest.raises(LogUnfinished):
        await read_epoch(bus)
    with pytest.raises(BrokerUnavailable):
        await Service(bus, key("a")).register()
    status = await adsum("status")
    assert (status.code, "the log is not whole" in status.out) == (1, True)
    assert (await adsum("log")).code == 1
    small = file_of(tmp_path / "small.jsonl", said[:10])
    result = await adsum("import", str(small))
    assert result.code == 0, result.err
    assert await whole_log(bus) == said[:10]
    await ensure_streams(bus)


async def test_an_embedded_broker_alone(tmp_path: Path) -> None:
    """`adsumd --broker-only` is a broker to import into; then adsumd as always folds it all."""
    file = file_of(tmp_path / "log.jsonl", [event(1), event(2, "b")])
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0", "--broker-only") as daemon:
        result = await Adsum(daemon.url)("import", str(file))
        assert result.code == 0, result.err
        broker = await connected(daemon.url)
        assert is_uuid7(await read_epoch(broker))
        assert None not in [await broker.stream_info(name) for name in (BEATS, TOPOLOGY)]
        await broker.close()
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as daemon:
        assert daemon.line.endswith("revision=2")


async def test_an_empty_log_and_one_that_begins_later(other: Server, bus: Broker, tmp_path: Path) -> None:
    adsum = Adsum(other.url)
    assert (await adsum("import", str(file_of(tmp_path / "empty.jsonl", [])))).code == 0
    assert await whole_log(bus) == []
    header, said = Header(epoch=await read_epoch(bus), first=41, head=head_of([event(40)])), [event(41), event(42)]
    file = file_of(tmp_path / "later.jsonl", said, header)
    result = await adsum("import", str(file))
    assert result.code == 0
    assert "--base FILE" in result.err
    assert await whole_log(bus) == said
    again = tmp_path / "again.jsonl"
    assert (await adsum("export", str(again))).code == 0
    assert in_file(again)[0].head == header.head
    assert in_file(again)[2] == in_file(file)[2]
    assert json.loads(again.read_text().splitlines()[0])["first"] == 41


async def test_the_new_epoch_is_above_every_one_that_is_known(other: Server, bus: Broker, tmp_path: Path) -> None:
    """That of the file, and those that states of before bear, though a clock far ahead gave them."""
    ahead, further = "0298c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10", "0398c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10"
    file = file_of(tmp_path / "log.jsonl", [event(1)], Header(epoch=ahead))
    adsum = Adsum(other.url)
    assert (await adsum("import", str(file))).code == 0
    assert await read_epoch(bus) > ahead
    state = encode(instance_of(record(key("a")), further))
    await bus.store(TOPOLOGY, subjects.topology(key("a")), state, {})
    await bus._js.delete_stream(EVENTS)
    assert (await adsum("import", str(file))).code == 0
    assert await read_epoch(bus) > further


async def test_wrong_usage(other: Server, tmp_path: Path) -> None:
    adsum = Adsum(other.url)
    assert (await adsum("import", "x", "--replicas", "2")).code == 2
    result = await adsum("import", str(tmp_path / "nowhere"))
    assert (result.code, "cannot be read" in result.err) == (1, True)
    result = await adsum("export", str(tmp_path / "x"))
    assert (result.code, "does not exist" in result.err) == (1, True)


async def test_an_import_never_deletes_a_log_that_came_meanwhile(
    other: Server, bus: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one import looks around another one is done and a service registers; or a service in an empty log."""
    small = file_of(tmp_path / "small.jsonl", [event(1)])
    said = [event(1), event(2, "b")]
    file = file_of(tmp_path / "log.jsonl", said)
    look = importing.announced_epochs

    async def meanwhile(broker: Broker) -> set[str]:
        monkeypatch.setattr(importing, "announced_epochs", look)
        info = await bus.stream_info(EVENTS)
        if info is not None and notes_of(info).importing:
            assert (await Adsum(other.url)("import", str(file))).code == 0
        await Service(bus, key("new")).register()
        return await look(broker)

    await ensure_streams(bus)
    for half_made in (False, True):
        if half_made:
            await delete_stream(bus, EVENTS)
            await bus.create_stream(importing._half_made(1, 1, Notes("0", importing="a host"), "adsum.import.x."))
        monkeypatch.setattr(importing, "announced_epochs", meanwhile)
        with pytest.raises((importing.CannotImport, NotesChanged)):
            await importing.bring(bus, str(small), 1, unheard, unheard)
        await ensure_streams(bus)
        assert [one.subject for one in await whole_log(bus)][-1] == subjects.event(key("new"))
        assert len(await whole_log(bus)) == (3 if half_made else 1)
        await Service(bus, key("later")).register()


async def test_of_two_imports_at_once_one_makes_the_log(other: Server, bus: Broker, tmp_path: Path) -> None:
    """The later one takes the place, the earlier one says that it could not be done."""
    said = [event(at, f"o-{at % 50}", b'{"filling":"%s"}' % (b"x" * 400)) for at in range(1, 20_001)]
    first, second = file_of(tmp_path / "first.jsonl", said), file_of(tmp_path / "second.jsonl", said[:9000])
    adsum = Adsum(other.url)
    running = await adsum.start("import", str(first))
    await until(lambda: bus.stream_info(EVENTS), lambda info: info is not None and info.state.messages > 500, 60)
    result = await adsum("import", str(second))
    assert (result.code, await running.code(60)) in ((0, 1), (0, 3)), (result.err, running.err)
    assert await whole_log(bus) == said[:9000]
    assert (await adsum("import", str(first))).code == 1
    await ensure_streams(bus)


def unheard(count: int) -> None:
    """No progress is shown."""
