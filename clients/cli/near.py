"""The names that were perhaps meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["near"]

MOST = 3


def near(name: str, known: Iterable[str]) -> str:
    """ "; did you mean …?" with the closest of `known`, or nothing. Pure."""
    close = difflib.get_close_matches(name, sorted(set(known)), n=MOST, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
