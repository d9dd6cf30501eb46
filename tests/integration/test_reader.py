"""Reading a stream in order, and never taking a gap for the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adsum.events import subjects
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.errors import AdsumError, BrokerUnavailable
from adsum.events.names import Key
from adsum.events.reader import Message, ReaderLost, StreamReader
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, ensure_streams
from adsum.events.wire import Heard
from tests.servers import Server
from tests.waiting import until

KEYS = [Key("default", "orders", f"a{number}") for number in range(5)]


async def said(broker: Broker, count: int, first: int = 0, stream: str = BEATS) -> None:
    """Store `count` messages, each a number, over five subjects in turn."""
    for start in range(first, first + count, 2_000):
        numbers = range(start, min(first + count, start + 2_000))
        futures = [await broker.store_later(stream, _subject(stream, number), b"%d" % number, {}) for number in numbers]
        await asyncio.gather(*futures)


def _subject(stream: str, number: int) -> str:
    key = KEYS[number % len(KEYS)]
    return subjects.event(key) if stream == EVENTS else subjects.beat(key, f"t{number}")


async def all_of(reader: StreamReader, most: int = 1000) -> list[Message]:
    """Everything up to the end of the stream."""
    read: list[Message] = []
    while batch := await reader.to_end(most):
        assert len(batch) <= most
        read += batch
    return read


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.data) for message in messages]


async def test_everything_in_order_and_then_whatever_comes(broker: Broker) -> None:
    await said(broker, 10, stream=EVENTS)
    before = time.time()
    async with StreamReader(broker, EVENTS) as reader:
        first = await all_of(reader)
        assert numbers(first) == list(range(10))
        assert [message.sequence for message in first] == list(range(1, 11))
        assert [message.subject for message in first] == [_subject(EVENTS, number) for number in range(10)]
        assert all(abs(message.time - before) < 60 for message in first)
        assert reader.behind == 0
        assert await reader.to_end() == []
        await said(broker, 3, first=10, stream=EVENTS)
        later: list[Message] = []
        while len(later) < 3:
            later += await reader.batch(2)
        assert numbers(later) == [10, 11, 12]
        assert reader.waiting == 0


async def test_from_a_time_on(broker: Broker) -> None:
    """With a filter too; from a time after the last one, whatever comes."""
    await said(broker, 5, stream=EVENTS)
    await asyncio.sleep(0.02)  # so that the times of the two halves differ, whatever they are rounded to
    await said(broker, 5, first=5, stream=EVENTS)
    async with StreamReader(broker, EVENTS) as reader:
        times = [message.time for message in await all_of(reader)]
    for stored_from, wanted in ((times[0] - 5, 0), ((times[4] + times[5]) / 2, 5)):
        async with StreamReader(broker, EVENTS, stored_from=stored_from) as reader:
            assert numbers(await all_of(reader)) == list(range(wanted, 10))
    async with StreamReader(broker, EVENTS, [_subject(EVENTS, 1)], stored_from=times[0] - 5) as reader:
        assert numbers(await all_of(reader)) == [1, 6]
    async with StreamReader(broker, EVENTS, stored_from=times[9] + 0.001) as reader:
        assert await all_of(reader) == []
        await said(broker, 1, first=10, stream=EVENTS)
        assert numbers(await reader.batch()) == [10]


@pytest.mark.parametrize(("start", "wanted"), [(0, 10), (1, 10), (2, 9), (10, 1), (11, 0), (99, 0)])
async def test_from_a_sequence_on(broker: Broker, start: int, wanted: int) -> None:
    await said(broker, 10)
    async with StreamReader(broker, BEATS, start=start) as reader:
        assert numbers(await all_of(reader)) == list(range(10 - wanted, 10))


async def test_an_empty_stream_is_at_its_end_at_once(broker: Broker) -> None:
    async with StreamReader(broker, TOPOLOGY) as reader:
        assert await reader.to_end() == []


async def test_only_what_the_filters_take(broker: Broker) -> None:
    await said(broker, 20, stream=EVENTS)
    async with StreamReader(broker, EVENTS, [subjects.event(KEYS[0]), subjects.event(KEYS[3])]) as reader:
        assert numbers(await all_of(reader, most=3)) == [0, 3, 5, 8, 10, 13, 15, 18]


async def test_the_end_is_never_seen_too_early(broker: Broker) -> None:
    """Opened again and again, while the deliveries race with the answer to the consumer's creation."""
    await said(broker, 7)
    for _ in range(150):
        async with StreamReader(broker, BEATS) as reader:
            assert numbers(await all_of(reader)) == list(range(7))


async def test_a_reader_leaves_nothing_behind(broker: Broker) -> None:
    for _ in range(3):
        async with StreamReader(broker, BEATS):
            info = await broker.stream_info(BEATS)
            assert info is not None
            assert info.state.consumer_count == 1
    info = await broker.stream_info(BEATS)
    assert info is not None
    assert info.state.consumer_count == 0


async def test_a_stream_that_is_not_there(broker: Broker) -> None:
    with pytest.raises(AdsumError, match="read stream NOTHING"):
        async with StreamReader(broker, "NOTHING"):
            raise AssertionError("it opened")


async def test_a_hundred_thousand_with_a_slow_taker(broker: Broker) -> None:
    """The broker's flow control holds back what is not taken yet, and nothing is lost or doubled."""
    count = 100_000
    for number in range(count):
        await broker.publish(_subject(BEATS, number), b"%d" % number)
    await until(lambda: _stored(broker), lambda stored: stored == count, seconds=60)
    most_waiting = 0
    read: list[int] = []
    async with StreamReader(broker, BEATS) as reader:
        while batch := await reader.to_end(500):
            read += numbers(batch)
            most_waiting = max(most_waiting, reader.waiting)
            for _ in range(3):
                await asyncio.sleep(0)
    assert read == list(range(count))
    assert most_waiting < count


async def _stored(broker: Broker) -> int:
    info = await broker.stream_info(BEATS)
    return info.state.messages if info else 0


async def test_what_is_not_taken_is_held_back_by_the_broker(broker: Broker) -> None:
    await said(broker, 60, stream=EVENTS)
    futures = [await broker.store_later(EVENTS, _subject(EVENTS, number), b"x" * 100_000, {}) for number in range(600)]
    await asyncio.gather(*futures)
    async with StreamReader(broker, EVENTS) as reader:
        held = await _settled(reader)
        assert 0 < held < 660
        total = 0
        while batch := await reader.to_end(50):
            total += len(batch)
        assert total == 660


async def _settled(reader: StreamReader) -> int:
    """How many have arrived once the broker sends its heartbeat instead of more."""
    heard = reader._heard_at
    seen = -1

    def quiet() -> bool:
        nonlocal seen, heard
        arrived = sum(isinstance(item, Message) for item in reader._waiting)
        same, seen = seen == arrived, arrived
        beaten, heard = heard != reader._heard_at, reader._heard_at
        return same and beaten

    await until(quiet)
    return seen


async def test_the_end_when_only_a_flow_control_request_is_left(broker: Broker) -> None:
    await said(broker, 3)
    async with StreamReader(broker, BEATS) as reader:
        await until(lambda: reader.waiting == 3)
        reader._waiting.append("a.request.of.the.broker")
        assert len(await reader.to_end()) == 3
        reader._waiting.append("a.request.of.the.broker")
        async with asyncio.timeout(2):
            assert await reader.to_end() == []


# ---- what it may have missed


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A nats-server that the test may kill."""
    running = await Server(tmp_path / "server").start()
    yield running
    await running.stop()


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Broker]:
    """A connection to it, the streams in place."""
    broker = Broker.open(BrokerSettings(url=server.url), "test", ping=0.5)
    await broker.ready(10)
    await ensure_streams(broker)
    yield broker
    await broker.close()


async def test_a_restart_of_the_broker_is_a_loss_and_another_reader_goes_on(server: Server, connection: Broker) -> None:
    await said(connection, 10, stream=EVENTS)
    async with StreamReader(connection, EVENTS) as reader:
        read = await all_of(reader)
        await server.kill()
        await server.start()
        with pytest.raises(ReaderLost, match=r"made anew|nothing from the broker"):
            await reader.batch()
    await connection.ready(10)
    await said(connection, 5, first=10, stream=EVENTS)
    async with StreamReader(connection, EVENTS, start=read[-1].sequence + 1) as reader:
        assert numbers(await all_of(reader)) == [10, 11, 12, 13, 14]


async def test_silence_of_the_broker_is_a_loss(server: Server, connection: Broker) -> None:
    patient = Broker.open(BrokerSettings(url=server.url), "patient", ping=60)
    await patient.ready(10)
    began = time.monotonic()
    async with StreamReader(patient, EVENTS) as reader:
        server.pause()
        with pytest.raises(ReaderLost, match="nothing from the broker for 3 s"):
            await reader.batch()
        assert 2.5 < time.monotonic() - began < 6
        server.go_on()
    await patient.close()


async def test_a_broker_that_is_there_is_never_taken_for_silent(connection: Broker) -> None:
    async with StreamReader(connection, EVENTS) as reader:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4.5):
                await reader.batch()


async def test_a_gap_in_the_delivery_is_a_loss_after_what_came_before_it(broker: Broker) -> None:
    await said(broker, 5)
    async with StreamReader(broker, BEATS) as reader:
        await until(lambda: reader.waiting == 5)
        reader._take(_delivery(sequence=99, delivered=7))
        reader._take(_delivery(sequence=100, delivered=8))
        assert numbers(await reader.batch()) == [0, 1, 2, 3, 4]
        with pytest.raises(ReaderLost, match="message 7 came after 5"):
            await reader.batch()
        with pytest.raises(ReaderLost):
            await reader.to_end()


async def test_a_heartbeat_that_tells_of_more_than_came_is_a_loss(broker: Broker) -> None:
    async with StreamReader(broker, BEATS) as reader:
        block = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 3\r\n\r\n"
        reader._take(Heard("x", b"", "", block))
        with pytest.raises(ReaderLost, match="the broker sent 3 messages, 0 arrived"):
            await reader.batch()


@pytest.mark.parametrize(
    "reply", ["$JS.ACK.S.C.1.99.1.1700000000000000000.4", "$JS.ACK.hub.A.S.C.1.99.1.1700000000000000000.4"]
)
async def test_the_reply_subject_with_and_without_a_domain(broker: Broker, reply: str) -> None:
    async with StreamReader(broker, BEATS) as reader:
        reader._take(Heard("a.b", b"7", reply))
        assert await reader.batch() == [Message("a.b", b"7", 99, 1_700_000_000.0)]
        assert reader.behind == 4


def _delivery(sequence: int, delivered: int) -> Heard:
    reply = f"$JS.ACK.S.C.1.{sequence}.{delivered}.1700000000000000000.0"
    return Heard("a.b", b"7", reply)


async def test_without_a_connection_none_opens(server: Server, connection: Broker) -> None:
    await server.kill()
    await until(lambda: not connection.connected)
    with pytest.raises(BrokerUnavailable):
        async with StreamReader(connection, EVENTS):
            raise AssertionError("it opened")
