"""UUIDv7 (RFC 9562, section 5.7): ids that sort by the time they were made.

They name instances, terms and epochs. Their order is never used to order events (the log's sequence does that);
it is used once, to make an epoch that is above all epochs seen before.
"""

from __future__ import annotations

import secrets
import threading
import time
import uuid
from collections.abc import Iterable

__all__ = ["is_uuid7", "new_epoch", "new_id"]

_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A new UUIDv7 in its canonical spelling, above every one this process made before."""
    global _last
    with _lock:
        _last = _at(max(time.time_ns() // 1_000_000, _next_millisecond(_last)))
        return str(uuid.UUID(int=_last))


def new_epoch(above: Iterable[str] = ()) -> str:
    """A new UUIDv7 that sorts above all in `above`, whatever this machine's clock says; what is none is ignored."""
    epoch = new_id()
    highest = max((seen for seen in above if is_uuid7(seen)), default="")
    if epoch > highest:
        return epoch
    return str(uuid.UUID(int=_at(_next_millisecond(uuid.UUID(highest).int))))


def is_uuid7(text: str) -> bool:
    """Whether `text` is the canonical spelling of a UUIDv7."""
    try:
        parsed = uuid.UUID(text)
    except ValueError:
        return False
    return parsed.version == 7 and str(parsed) == text


def _at(milliseconds: int) -> int:
    random = secrets.randbits(74)
    return (milliseconds << 80) | (7 << 76) | ((random >> 62) << 64) | (0b10 << 62) | (random & (1 << 62) - 1)


def _next_millisecond(value: int) -> int:
    return (value >> 80) + 1
