"""Reading what comes over the wire so that no message that anybody could store ends a connection.

The broker stores any subject without a space and any header block; nats-py raises for some of them, loses the
connection for it, and meets the same stored message again. Here each is read as far as it can be.
"""

from __future__ import annotations

import re
from types import FunctionType
from typing import Any

from nats.protocol import parser

__all__ = ["Parser", "headers_of", "text_of"]

_VERSION = "NATS/1.0"


def _separating_as_the_server_does(operation: bytes, sizes: bytes) -> re.Pattern[bytes]:
    """The driver's pattern, but for one thing: a vertical tab or a form feed is a part of the subject, no space."""
    word, space = rb"([^ \t\r\n]+)", rb"[ \t]+"
    return re.compile(
        rb"\A" + operation + space + word + space + rb"(\d+)" + space + b"(" + word + space + b")?" + sizes
    )


_PATTERNS = {
    "MSG_RE": _separating_as_the_server_does(b"MSG", rb"(\d+)\r\n"),
    "HMSG_RE": _separating_as_the_server_does(b"HMSG", rb"(\d+)[ \t]+(\d+)\r\n"),
}


class Parser(parser.Parser):
    """The driver's parser with these patterns instead of its own, which other users of nats-py here keep."""

    parse: Any = FunctionType(parser.Parser.parse.__code__, vars(parser) | _PATTERNS, "parse", (b"",))


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
