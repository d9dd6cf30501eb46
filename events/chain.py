"""The running hash over the log: what was folded can be compared with what stands, event by event. Pure.

Each link is SHA-256 over the link before it, the sequence, the broker's time in microseconds, and subject and payload
as they were stored. It begins with 32 zero bytes, so the same log gives the same head wherever it is folded, and
whichever epoch it bears.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .reader import Message

__all__ = ["GENESIS", "link"]

GENESIS = bytes(32)
"""The head before the first message."""
_HEAD = struct.Struct(">32sQqI")


def link(head: bytes, message: Message) -> bytes:
    """The head after `message`."""
    subject = message.subject.encode(errors="backslashreplace")
    began = _HEAD.pack(head, message.sequence, round(message.time * 1e6), len(subject))
    return hashlib.sha256(began + subject + message.data).digest()
