"""The names that were perhaps meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .output import SHORTENED

__all__ = ["near", "near_ids"]

MOST = 3


def near(name: str, known: Iterable[str]) -> str:
    """ "; did you mean …?" with the closest of `known`, or nothing. Pure."""
    return _meant(difflib.get_close_matches(name, sorted(set(known)), n=MOST, cutoff=0.5))


def near_ids(id: str, known: Iterable[str]) -> str:
    """The same for ids, of which often only the beginning or the end is typed, or both as tables show it. Pure."""
    begin, dots, end = id.partition(SHORTENED)
    close = [one for one in sorted(set(known)) if one.startswith(begin) and one.endswith(end)] if begin + end else []
    if not close and not dots:
        close = [one for one in sorted(set(known)) if one.endswith(id)]
    return _meant(close[:MOST]) or near(id, known)


def _meant(close: list[str]) -> str:
    return f"; did you mean {' or '.join(close)}?" if close else ""
