"""The rules for names and texts, checked where they are written.

A namespace, a service and an instance id are DNS labels (RFC 1123, section 2.1), so that each is one subject
token, one DNS label and one URL segment. Capabilities keep their case.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import NamedTuple

from .errors import InvalidValue

__all__ = ["Key", "check_capability", "check_known", "check_label", "check_text", "suggest_label"]

_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_CAPABILITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
LABEL_RULE = "must be 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
CAPABILITY_RULE = "must be 1 to 63 of A-Z, a-z, 0-9, '_', '.' and '-', beginning with a letter or digit"


class Key(NamedTuple):
    """What names an instance: its namespace, its service and its id."""

    namespace: str
    service: str
    id: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.service}/{self.id}"


def check_label(field: str, value: str) -> str:
    """Give `value` back if it is a DNS label, else raise InvalidValue with one that would do."""
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise InvalidValue(field, value, LABEL_RULE, suggest_label(value))
    return value


def suggest_label(value: object) -> str | None:
    """The nearest DNS label to `value`, or None if nothing of it can be kept."""
    label = re.sub(r"[^a-z0-9-]+", "-", str(value).lower())[:63].strip("-")
    return label or None


def check_capability(value: str) -> str:
    """Give `value` back if it is the name of a capability, else raise InvalidValue with one that would do."""
    if not isinstance(value, str) or not _CAPABILITY.fullmatch(value):
        kept = re.sub(r"[^A-Za-z0-9_.-]+", "-", str(value)).strip("-_.")[:63]
        raise InvalidValue("capability", value, CAPABILITY_RULE, kept or None)
    return value


def check_known(field: str, value: str, known: Iterable[str], where: str = "is not known (known") -> None:
    """Raise InvalidValue, with the closest name that is known, unless `value` is. `where` begins the list of them."""
    names = list(known)
    if value not in names:
        close = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
        raise InvalidValue(field, value, f"{where}: {', '.join(names)})", close[0] if close else None)


def check_text(field: str, value: str, longest: int) -> str:
    """Give `value` back if it is text without NUL of at most `longest` characters.

    NUL is refused because PostgreSQL cannot store it, lone surrogates because UTF-8 cannot carry them.
    """
    if not isinstance(value, str):
        raise InvalidValue(field, value, "must be text")
    if "\0" in value:
        raise InvalidValue(field, value, "must not contain NUL", value.replace("\0", "") or None)
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise InvalidValue(field, value, "must be encodable as UTF-8 (no lone surrogates)")
    if len(value) > longest:
        raise InvalidValue(field, value, f"must be at most {longest} characters, is {len(value)}")
    return value
