"""What a person means by a moment: `@revision`, or a time in ISO 8601."""

from __future__ import annotations

from datetime import datetime

from adsum.events.errors import InvalidValue
from adsum.events.questions import Moment

__all__ = ["parse_moment"]

RULE = "must be @REVISION or a time such as 2026-01-31T14:32"


def parse_moment(text: str, now: float) -> Moment:
    """The moment that `text` means; a time without an offset is local. Raises InvalidValue, also for the future."""
    if text.startswith("@") and text[1:].isdecimal():
        return Moment(revision=int(text[1:]))
    try:
        time = datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidValue("moment", text, RULE) from None
    if time > now:
        raise InvalidValue("moment", text, "lies in the future")
    return Moment(time=time)
