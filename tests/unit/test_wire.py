"""The bytes of a connection: whole messages come out of them, however the network cuts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some
from nats.errors import ProtocolError

from adsum.events.wire import Heard, Parser, Receiving, headers_of, publication

HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"
SAID = [
    (b"MSG a.b 7 2\r\nhi\r\n", (7, b"a.b", b"", b"hi", b"")),
    (b"MSG a.b 7 $JS.ACK.1 0\r\n\r\n", (7, b"a.b", b"$JS.ACK.1", b"", b"")),
    (b"PING\r\n", "ping"),
    (b"MSG a\x0bb 12 16\r\nMSG x 1 1\r\nz\r\n\r\n\r\n", (12, b"a\x0bb", b"", b"MSG x 1 1\r\nz\r\n\r\n", b"")),
    (b"PONG\r\n", "pong"),
    (
        b"HMSG a 1 re %d %d\r\n%b\xff\r\n\r\n" % (len(HEADERS), len(HEADERS) + 3, HEADERS),
        (1, b"a", b"re", b"\xff\r\n", HEADERS),
    ),
    (b"HMSG a 1 %d %d\r\n%b\r\n" % (len(HEADERS), len(HEADERS), HEADERS), (1, b"a", b"", b"", HEADERS)),
    (b"-ERR 'Slow Down'\r\n", "'slow down'"),
    (b'INFO {"server_id":"x"}\r\n', {"server_id": "x"}),
    (b"+OK\r\n", None),
    (b"MSG \xff 3 70000\r\n" + b"\r\n" * 35000 + b"\r\n", (3, b"\xff", b"", b"\r\n" * 35000, b"")),
]


class Client:
    """Notes what the parser makes of what came."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.hearing: dict[int, Callable[[Heard], None]] = {}

    def failed(self, error: Exception) -> None:
        self.heard.append(str(error))

    async def deliver(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self.heard.append((sid, subject, reply, data, headers))

    async def _process_ping(self) -> None:
        self.heard.append("ping")

    async def _process_pong(self) -> None:
        self.heard.append("pong")

    async def _process_err(self, error: str) -> None:
        self.heard.append(error)

    async def _process_info(self, info: dict[str, object]) -> None:
        self.heard.append(info)


def parsed(*parts: bytes) -> list[object]:
    async def parse() -> list[object]:
        client = Client()
        parser = Parser(client)
        for part in parts:
            await parser.parse(part)
        return client.heard

    return asyncio.run(parse())


STREAM = b"".join(sent for sent, _ in SAID)
HEARD = [heard for _, heard in SAID if heard is not None]
SHORT = len(STREAM) - len(SAID[-1][0])


def test_whole_messages_and_all_else_in_order() -> None:
    """The driver's own parser gets what is no message; what stands in a message is never taken for one."""
    assert parsed(STREAM) == HEARD


def test_byte_by_byte() -> None:
    assert parsed(*(STREAM[at : at + 1] for at in range(SHORT)), STREAM[SHORT:]) == HEARD


@given(some.lists(some.integers(0, len(STREAM)), max_size=8))
def test_however_it_is_cut(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(STREAM)]
    assert parsed(*(STREAM[a:b] for a, b in pairwise(ends))) == HEARD


def test_who_listens_is_called_and_may_fail() -> None:
    """A plain function gets the messages of its subscription, the driver all others; one that raises ends nothing."""

    def hear(heard: Heard) -> None:
        client.heard.append((heard.subject, heard.reply, heard.data, heard.headers))
        if not heard.data:
            raise ValueError("no data")

    client = Client()
    client.hearing[1] = hear
    asyncio.run(Parser(client).parse(STREAM))
    own = [("a", "re", b"\xff\r\n", {"A": "b"}), ("a", "", b"", {"A": "b"}), "no data"]
    assert client.heard == [*HEARD[:5], *own, *HEARD[7:]]


class Reader(asyncio.Protocol):
    """What the driver reads from."""

    def __init__(self) -> None:
        self.read = b""

    def data_received(self, data: bytes) -> None:
        self.read += data


@given(some.lists(some.integers(0, len(STREAM)), max_size=8), some.sets(some.sampled_from([1, 3, 7, 12])))
def test_what_nobody_hears_goes_to_the_driver_whole_and_in_order(cuts: list[int], listened: set[int]) -> None:
    """Plain functions hear their messages as they arrive, however they are cut; the rest is the driver's."""
    client, reader = Client(), Reader()
    client.hearing = dict.fromkeys(listened, client.heard.append)
    receiving = Receiving(reader, Parser(client).heard)
    ends = [0, *sorted(cuts), len(STREAM)]
    for a, b in pairwise(ends):
        receiving.data_received(STREAM[a:b])
    sids = [heard[0] if isinstance(heard, tuple) else None for _, heard in SAID]
    assert reader.read == b"".join(sent for (sent, _), sid in zip(SAID, sids, strict=True) if sid not in listened)
    assert [heard.data for heard in client.heard] == [
        heard[3] for _, heard in SAID if isinstance(heard, tuple) and heard[0] in listened
    ]


@given(
    some.text(some.characters(exclude_categories=["Cs"]), max_size=8),
    some.binary(max_size=20),
    some.dictionaries(some.sampled_from(["A", "Nats-Msg-Id"]), some.text(max_size=5)),
)
def test_what_is_published_is_one_message_or_left_to_the_driver(
    subject: str, data: bytes, headers: dict[str, str]
) -> None:
    """No subject, header or payload says anything else to the server than that it is one."""
    said = publication(subject, data, "_INBOX.1", headers)
    odd = not subject or any(space in subject for space in " \t\r\n")
    odd = odd or any(space in value for value in headers.values() for space in "\r\n")
    assert (said is None) == odd
    if said is None:
        return
    heard: list[Heard] = []
    client = Client()
    client.hearing[7] = heard.append
    name = subject.encode()
    asyncio.run(Parser(client).parse(said.replace(b"PUB " + name, b"MSG " + name + b" 7", 1)))
    [message] = heard
    assert (message.data, message.reply) == (data, "_INBOX.1")
    assert (headers_of(message.block) or {}) == {name: value.strip() for name, value in headers.items()}


def test_a_connection_that_is_another_one_begins_anew() -> None:
    """Half a message of the lost connection is no part of what the next one says."""

    async def parse() -> list[object]:
        client = Client()
        parser = Parser(client)
        await parser.parse(b"MSG a 1 100\r\nbroken off")
        parser.reset()
        await parser.parse(SAID[0][0])
        return client.heard

    assert asyncio.run(parse()) == [SAID[0][1]]


def test_what_is_no_protocol_is_refused() -> None:
    with pytest.raises(ProtocolError):
        parsed(b"HTTP/1.1 400 Bad Request\r\n")
