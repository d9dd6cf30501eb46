"""Reading what comes over the wire so that no message that anybody could store ends a connection.

The broker stores any subject without a space and any header block; nats-py raises for some of them, loses the
connection for it, and meets the same stored message again. Here each is read as far as it can be.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from nats.protocol import parser

__all__ = ["Client", "Heard", "Parser", "headers_of", "text_of"]

_VERSION = "NATS/1.0"
_LINE_END = b"\r\n"


class Heard(NamedTuple):
    """A message as it came."""

    subject: str
    data: bytes
    reply: str
    headers: dict[str, str] | None


class Client(Protocol):
    """What the parser asks of the connection that it reads for."""

    async def deliver(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """A message of this subscription came; no headers: empty."""


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
            reply = words[2] if len(words) == 4 else b""
            await self._client.deliver(int(words[1]), words[0], reply, read[body:over], read[begin:body])
        if at < len(read):
            self._parts.append(read[at:])


def text_of(subject: bytes) -> str:
    """A subject as text that any database takes: what is no UTF-8, and NUL, stand as escapes in it."""
    return subject.decode(errors="backslashreplace").replace("\0", "\\x00")


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
