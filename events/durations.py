"""Durations as people write them: "15s", "250ms", "1m30s", "2h"; always seconds inside."""

from __future__ import annotations

import math
import re

from .errors import InvalidValue

__all__ = ["format_duration", "parse_duration"]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)\s*")
_TOO_LONG = 1e12
RULE = 'must be a positive duration such as "250ms", "30s", "1m30s", "2h" or "1d"'


def parse_duration(text: str | float, field: str = "duration") -> float:
    """Seconds from "30s", "1m30s" or a bare number of seconds. Raises InvalidValue for anything else."""
    seconds = _seconds(text)
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        raise InvalidValue(field, text, RULE)
    return seconds


def format_duration(seconds: float) -> str:
    """A short spelling that `parse_duration` reads back, to the millisecond: 90.0 is "1m30s", 0.25 is "250ms"."""
    milliseconds = round(seconds * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3f}".rstrip("0") + "s"
    parts, rest = [], milliseconds // 1000
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _seconds(text: str | float) -> float | None:
    if isinstance(text, bool):
        return None
    if isinstance(text, int | float):
        return float(text) if abs(text) < _TOO_LONG else None
    bare = text.strip().lower()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", bare):
        return float(bare)
    parts = list(_PART.finditer(bare))
    if "".join(part.group() for part in parts) != bare:
        return None
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)
