"""Reading what comes over the wire so that no message that anybody could store ends a connection.

The broker stores any subject without a space and any header block; nats-py raises for some of them, loses the
connection for it, and meets the same stored message again. Here each is read as far as it can be.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeAlias

import msgspec
from nats.protocol import parser

__all__ = ["Client", "Heard", "Parser", "Piece", "Receiving", "headers_of", "publication", "text_of"]

_VERSION = "NATS/1.0"
_LINE_END = b"\r\n"
_SPACE = re.compile(r"[ \t\r\n]")
_NAME = re.compile(r"[A-Za-z0-9-]+")

log = logging.getLogger("adsum.broker")


class Heard(msgspec.Struct, frozen=True, gc=False):
    """A message as it came; `block` is what holds its headers, which few look at."""

    subject: str
    data: bytes
    reply: str = ""
    block: bytes = b""

    @property
    def headers(self) -> dict[str, str]:
        """Empty if there are none that can be read."""
        return headers_of(self.block) or {} if self.block else {}


class Client(Protocol):
    """What the parser asks of the connection that it reads for."""

    hearing: dict[int, Callable[[Heard], None]]
    """Plain functions, by subscription: each is called as a message is read."""

    def failed(self, error: Exception) -> None:
        """One of them raised this."""

    async def deliver(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """A message of any other subscription came; no headers: empty."""


Piece: TypeAlias = tuple[bytes, int, int, int, bytes, bytes, bytes, bytes]
"""(read, begin, end, sid, subject, reply, block, data): what stands in `read` from `begin` to `end`.

A message, or a line that is none and has sid 0. A bare tuple: making one by its name costs as much as cutting it out.
"""


class _Pieces:
    """Cuts what arrives; what is no whole piece yet is kept for the next time."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._lacking = 0

    def cut(self, data: bytes) -> Iterator[Piece]:
        """All that is whole with this."""
        self._parts.append(data)
        self._lacking -= len(data)
        if self._lacking > 0:
            return
        read, at = b"".join(self._parts) if len(self._parts) > 1 else data, 0
        self._parts, self._lacking = [], 0
        while (line := read.find(_LINE_END, at)) >= 0:
            kind, *words = read[at:line].split(b" ")
            body = line + 2
            if kind == b"MSG":
                content = body
            elif kind == b"HMSG":
                content = body + int(words[-2])
            else:
                yield read, at, body, 0, b"", b"", b"", b""
                at = body
                continue
            over = body + int(words[-1])
            if len(read) < over + 2:
                self._lacking = over + 2 - len(read)
                break
            reply = words[2] if len(words) == (4 if kind == b"MSG" else 5) else b""
            yield read, at, over + 2, int(words[1]), words[0], reply, read[body:content], read[content:over]
            at = over + 2
        if at < len(read):
            self._parts.append(read[at:])


class Parser(parser.Parser):
    """Reads messages by itself, and leaves every other line to the driver's parser.

    That one takes each message out of one growing buffer with regular expressions, which costs more than all that is
    done with most messages. And to it a vertical tab or a form feed ends a subject; to the server it is a part of it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pieces = _Pieces()
        super().__init__(client)

    def reset(self) -> None:
        """The connection is another one."""
        super().reset()
        self._pieces = _Pieces()

    async def parse(self, data: bytes = b"") -> None:
        """Take in what was read; what is no whole piece yet is kept for the next time."""
        for piece in self._pieces.cut(data):
            read, begin, end, sid, subject, reply, block, content = piece
            if not sid:
                await super().parse(read[begin:end])
            elif not self.heard(piece):
                await self._client.deliver(sid, subject, reply, content, block)

    def heard(self, piece: Piece) -> bool:
        """Whether a plain function hears it, which then has."""
        _, _, _, sid, subject, reply, block, data = piece
        hear = self._client.hearing.get(sid)
        if hear is None:
            return False
        try:
            hear(Heard(text_of(subject), data, text_of(reply), block))
        except Exception as error:
            log.debug("hearing %s failed", subject, exc_info=True)
            self._client.failed(error)
        return True


class Receiving(asyncio.Protocol):
    """Between one socket and the driver's `reader`: plain functions hear their messages as they arrive.

    The driver puts all that arrives into a buffer and wakes a task that reads it out again. Here it gets what nobody
    has `heard`, in whole pieces.
    """

    def __init__(self, reader: asyncio.Protocol, heard: Callable[[Piece], bool]) -> None:
        self._reader, self._heard = reader, heard
        self._pieces = _Pieces()

    def data_received(self, data: bytes) -> None:
        """Some bytes arrived."""
        others = []
        for piece in self._pieces.cut(data):
            if not self._heard(piece):
                read, begin, end, *_ = piece
                others.append(read[begin:end])
        if others:
            self._reader.data_received(b"".join(others))

    def eof_received(self) -> None:
        """No more will: the socket closes, and nothing more is said to it (the driver's reader would keep it open)."""
        self._reader.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._reader.connection_lost(exc)

    def pause_writing(self) -> None:
        """It takes no more for now."""
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        """It takes more."""
        self._reader.resume_writing()


def publication(subject: str, data: bytes, reply: str, headers: Mapping[str, str]) -> bytes | None:
    """What publishes this, as the server reads it; None if a line of it would break."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if not subject or _SPACE.search(subject + reply) or not lines.count("\r") == lines.count("\n") == len(headers):
        return None
    if not all(map(_NAME.fullmatch, headers)):
        return None
    if not headers:
        return f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + _LINE_END
    block = f"{_VERSION}\r\n{lines}\r\n".encode()
    return f"HPUB {subject} {reply} {len(block)} {len(block) + len(data)}\r\n".encode() + block + data + _LINE_END


def text_of(subject: bytes) -> str:
    """A subject as text that any database takes: what is no UTF-8, and NUL, stand as escapes in it."""
    return str(subject, "utf-8", "backslashreplace").replace("\0", "\\x00")


def headers_of(block: bytes) -> dict[str, str] | None:
    """The headers of a block, the status that the server says inline among them; None if there are none to be read.

    NATS/1.0 100 Idle Heartbeat\\r\\nNats-Last-Consumer: 1016\\r\\n\\r\\n
    """
    try:
        first, *lines = block.decode().split("\r\n")
    except UnicodeDecodeError:
        return None
    if not first.startswith(_VERSION):
        return None
    headers: dict[str, str] = {}
    status, _, description = first[len(_VERSION) :].strip().partition(" ")
    if status:
        headers["Status"] = status
        if description:
            headers["Description"] = description
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip()] = value.strip()
    return headers or None
