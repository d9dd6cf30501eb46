"""What anybody who may publish can store: no message of it ends a reader, and each one reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from adsum.events import subjects
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.errors import BrokerUnavailable, Unacknowledged
from adsum.events.names import Key
from adsum.events.reader import StreamReader
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY
from adsum.events.wire import headers_of, text_of
from adsum.projector.embedded import EmbeddedBroker
from tests.servers import Server
from tests.waiting import until

PREFIXES = {
    EVENTS: b"adsum.v1.default.event.orders.",
    TOPOLOGY: b"adsum.v1.default.topology.orders.",
    BEATS: b"adsum.v1.default.beat.orders.",
}
SUBJECTS = [bytes([byte]) for byte in range(256) if byte not in b" \t\r\n.*>"] + [
    b"\xc3\x28",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf5\x80\x80\x80",
    b"a\x0bb",
    b"a\x0c7",
    b"7\x0b7",
    b"\xff" * 200,
    "ünïcödé\u2028".encode(),
]
HEADERS = [
    b"X\r\n\r\n",
    b"NATS/1.0\r\nX\r\n\r\n",
    b"NATS/1.0\r\n\xff: \xff\r\n\r\n",
    b"NATS/1.0\r\nX: a\0b\r\n\r\n",
    b"NATS/1.0\r\nX: a\n folded\r\n\r\n",
    b"NATS/1.0\r\nX: =?utf-8?q?=ff?=\r\n\r\n",
    b"NATS/1.0 100\r\n\r\n",
    b"NATS/1.0 100 Idle Heartbeat\r\n\r\n",
    b"NATS/1.0 100 Idle \xff\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0 \xff\xff\xff\r\n\r\n",
    b"NATS/1.0 \xb2\r\n\r\n",
    b"NATS/1.0",
    b"NATS/1.0 ",
    b"NATS/1.0\r\nStatus: 100\r\n\r\n",
    b"NATS/1.0\r\nStatus: 100\r\nNats-Last-Consumer: 99\r\n\r\n",
    b"NATS/1.0\r\nStatus: 100\r\nNats-Last-Consumer: many\r\nNats-Consumer-Stalled: adsum.tick\r\n\r\n",
    b"NATS/1.0\r\nStatus: 503\r\n\r\n",
    b"\r\n",
    b"\r\n\r\n",
    b"N\0",
    b"\xff" * 30,
]  # none of a single byte: a stream that republishes ends nats-server 2.15.1 with a panic at one


class Socket:
    """A client that sends whatever bytes it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, *operations: bytes) -> None:
        """Send these, and wait until the server has taken them."""
        self.writer.write(b"".join(operations) + b"PING\r\n")
        said = await self.reader.readuntil(b"PONG\r\n")
        assert b"-ERR" not in said


@pytest.fixture
async def socket(nats: EmbeddedBroker) -> AsyncIterator[Socket]:
    """A bare connection to the server."""
    reader, writer = await asyncio.open_connection(*nats.url.removeprefix("nats://").split(":"))
    writer.write(b'CONNECT {"headers":true,"verbose":false,"pedantic":false}\r\n')
    yield Socket(reader, writer)
    writer.close()
    await writer.wait_closed()


def publishing(subject: bytes, data: bytes, headers: bytes = b"") -> bytes:
    if headers:
        sizes = b"%d %d" % (len(headers), len(headers) + len(data))
        return b"HPUB " + subject + b" " + sizes + b"\r\n" + headers + data + b"\r\n"
    return b"PUB " + subject + b" %d\r\n" % len(data) + data + b"\r\n"


def everything(prefix: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """Subjects, data and headers: each odd subject, each odd header block with and without data, both odd."""
    odd = [(prefix + tail, b"%d" % number, b"") for number, tail in enumerate(SUBJECTS)]
    empty = [(prefix + b"e%d" % number, b"", block) for number, block in enumerate(HEADERS)]
    full = [(prefix + b"f%d" % number, b"{}", block) for number, block in enumerate(HEADERS)]
    both = [(prefix + b"\xff%d" % number, b"", block) for number, block in enumerate(HEADERS)]
    return [*odd, *empty, *full, *both]


async def stored(broker: Broker, stream: str) -> int:
    info = await broker.stream_info(stream)
    return info.state.last_seq if info else 0


@pytest.mark.parametrize("stream", [EVENTS, TOPOLOGY])
async def test_whatever_is_stored_reaches_the_reader(broker: Broker, socket: Socket, stream: str) -> None:
    sent = everything(PREFIXES[stream])
    before = await stored(broker, stream)
    await socket.send(*(publishing(*message) for message in sent))
    await until(lambda: stored(broker, stream), lambda last: last == before + len(sent))
    async with StreamReader(broker, stream, start=before + 1) as reader:
        read = []
        while batch := await reader.to_end():
            read += batch
        assert [(message.subject, message.data) for message in read] == [(text_of(s), data) for s, data, _ in sent]
        assert [message.sequence for message in read] == list(range(before + 1, before + len(sent) + 1))
        await socket.send(publishing(PREFIXES[stream] + b"after", b"it goes on"))
        assert [message.data for message in await reader.batch()] == [b"it goes on"]
    assert all("\0" not in message.subject for message in read)
    assert [message.subject.encode() for message in read]  # no lone surrogate, which no database takes
    assert (broker.connects, broker.connected, broker.last_error) == (1, True, "")


async def test_whatever_is_stored_can_be_looked_at(broker: Broker, socket: Socket) -> None:
    sent = everything(PREFIXES[EVENTS])
    before = await stored(broker, EVENTS)
    await socket.send(*(publishing(*message) for message in sent))
    await until(lambda: stored(broker, EVENTS), lambda last: last == before + len(sent))
    for at, (subject, data, headers) in enumerate(sent, before + 1):
        found = await broker.message_at(EVENTS, at)
        assert found is not None
        assert (found.seq, found.data or b"") == (at, data)
        if subject.isascii() and found.hdrs:  # an inline status is none of the headers that it keeps
            assert found.headers == headers_of(headers)
            last = await broker.last_message(EVENTS, subject.decode())
            assert last is not None
            assert last.seq == at
    assert (broker.connects, broker.last_error) == (1, "")


async def test_a_plain_subscription_gets_it_too(broker: Broker, socket: Socket) -> None:
    heard: list[tuple[str, bytes]] = []

    async def hear(msg: Msg) -> None:
        heard.append((msg.subject, msg.data))

    await broker.subscribe("elsewhere.>", hear)
    sent = everything(b"elsewhere.")
    await socket.send(*(publishing(*message) for message in sent))
    await until(lambda: len(heard) == len(sent))
    assert heard == [(text_of(subject), data) for subject, data, _ in sent]
    assert (broker.connects, broker.last_error) == (1, "")


async def test_what_comes_to_a_readers_inbox_from_others_is_let_go(broker: Broker, socket: Socket) -> None:
    async with StreamReader(broker, EVENTS) as reader:
        assert reader._subscription is not None
        inbox = reader._subscription.subject.encode()
        await socket.send(publishing(inbox, b"no message"), *(publishing(inbox, b"", block) for block in HEADERS[:6]))
        key = Key("default", "orders", "a1")
        await broker.store(EVENTS, subjects.event(key), b"{}", {})
        assert [message.data for message in await reader.batch()] == [b"{}"]


ANSWERS = [
    b"",
    b"\xff",
    b"null",
    b"7",
    b"[]",
    b"{}",
    b'{"error": 7}',
    b'{"error": {"code": 404, "odd": 1}}',
    b"[" * 9999,
]
ANSWERS += [b'{"stream": "ADSUM_EVENTS", "seq": "x"}', b'{"stream": 1, "seq": null}']


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answer_by_somebody_else_is_none(nats: EmbeddedBroker, broker: Broker, answer: bytes) -> None:
    """Whoever hears a publish knows where its acknowledgement is awaited."""
    other = Broker.open(BrokerSettings(url=nats.url), "other")
    await other.ready(10)

    async def reply(msg: Msg) -> None:
        await other.publish(msg.reply, answer)

    await other.subscribe("elsewhere.>", reply)
    with pytest.raises(Unacknowledged, match="none of the broker's"):
        await broker.store(EVENTS, "elsewhere.a", b"{}", {})
    future = await broker.store_later(EVENTS, "elsewhere.a", b"{}", {})
    with pytest.raises(Unacknowledged, match="none of the broker's"):
        await asyncio.wait_for(future, 5)
    await other.close()
    assert (broker.connects, broker.last_error) == (1, "")


LOOKS = [
    *(b"", b"\xff", b"null", b"7", b"[]", b"{}", b"[" * 9999),
    *(b'{"error": 7}', b'{"error": {"code": "x", "odd": 1}}', b'{"message": 7}', b'{"message": null}'),
    *(b'{"message": {"subject": "a", "seq": 1, "time": "then"}}', b'{"message": {"subject": "a", "seq": "1"}}'),
    b'{"message": {"subject": "a", "seq": 1, "time": "2030-01-01T00:00:00Z", "data": "no base64"}}',
]


async def test_an_odd_answer_to_a_look_is_no_answer(tmp_path: Path) -> None:
    """Here somebody else answers for the broker, which has no streams."""
    server = await Server(tmp_path, jetstream=False).start()
    broker, other = (Broker.open(BrokerSettings(url=server.url), name) for name in ("test", "other"))
    left = list(LOOKS)

    async def reply(msg: Msg) -> None:
        await other.publish(msg.reply, left.pop(0))

    try:
        await broker.ready(10)
        await other.ready(10)
        await other.subscribe("$JS.API.>", reply)
        for _ in LOOKS:
            with pytest.raises(BrokerUnavailable, match=r"read stream ADSUM_EVENTS: .*none of the broker's"):
                await broker.message_at(EVENTS, 1)
        assert not left
        assert (broker.connects, broker.last_error) == (1, "")
    finally:
        await asyncio.gather(broker.close(), other.close())
        await server.stop()
