"""Reading what comes over the wire so that no message that anybody could store ends a connection.

The broker stores any subject without a space and any header block; nats-py raises for some of them, loses the
connection for it, and meets the same stored message again. Here each is read as far as it can be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import msgspec
from nats.protocol import parser

__all__ = ["Client", "Heard", "Parser", "headers_of", "text_of"]

_VERSION = "NATS/1.0"
_LINE_END = b"\r\n"

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

    async def failed(self, error: Exception) -> None:
        """One of them raised this."""

    async def deliver(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """A message of any other subscription came; no headers: empty."""


class Parser(parser.Parser):
    """Reads messages by itself, and leaves every other line to the driver's parser.

    That one takes each message out of one growing buffer with regular expressions, which costs more than all that is
    done with most messages. And to it a vertical tab or a form feed ends a subject; to the server it is a part of it.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._parts: list[bytes] = []
        self._lacking = 0
        super().__init__(client)

    def reset(self) -> None:
        """The connection is another one."""
        super().reset()
        self._parts, self._lacking = [], 0

    async def parse(self, data: bytes = b"") -> None:
        """Take in what was read; what is no whole message yet is kept for the next time."""
        self._parts.append(data)
        self._lacking -= len(data)
        if self._lacking > 0:
            return
        read, at = b"".join(self._parts) if len(self._parts) > 1 else data, 0
        self._parts, self._lacking = [], 0
        while (end := read.find(_LINE_END, at)) >= 0:
            kind, *words = read[at:end].split(b" ")
            begin = end + 2
            if kind == b"MSG":
                size = int(words[-1])
                body = begin
            elif kind == b"HMSG":
                size = int(words.pop())
                body = begin + int(words[-1])
            else:
                await super().parse(read[at:begin])
                at = begin
                continue
            over = begin + size
            if len(read) < over + 2:
                self._lacking = over + 2 - len(read)
                break
            at = over + 2
            sid, reply = int(words[1]), words[2] if len(words) == 4 else b""
            hear = self._client.hearing.get(sid)
            if hear is None:
                await self._client.deliver(sid, words[0], reply, read[body:over], read[begin:body])
                continue
            try:
                hear(Heard(text_of(words[0]), read[body:over], text_of(reply), read[begin:body]))
            except Exception as error:
                log.debug("hearing %s failed", words[0], exc_info=True)
                await self._client.failed(error)
        if at < len(read):
            self._parts.append(read[at:])


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
