"""Versions and ranges of them. A version is free text, so what has an order is a matter of a rule, and this is it.

* A version that begins with numbers (after a "v", if there is one) has an order: "1.4", "v1.4.2", "1.4.2-rc.1+linux".
  The numbers are compared one by one, missing ones are 0. What follows is a pre-release, before the version without it;
  its parts are compared as in SemVer 2.0.0, section 11: numbers as numbers and below words, words as text. From "+"
  on nothing counts (section 10).
* Any other text ("blue", "main-3f2a") has no order: it is equal to itself and in no range.
* `>=1.4,<2`: all clauses must hold. Operators: `>=` `>` `<=` `<` `==` `!=`. `<2` does not take the pre-releases of 2,
  though they come before it: nobody who writes it means them (the rule of PEP 440 for exclusive comparison).
* A text without an operator is that text, letter by letter. `~=`, `^` and the like are refused.

The library `packaging` is not used: it reads the versions of Python packages (PEP 440) and raises for others, such as
"1.4.2-alpine" or "2026-01-31-3f2a", and a range there hides pre-releases by rules of its own. `semver` and
`semantic-version` insist on three numbers.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from adsum.events.errors import InvalidValue
from adsum.events.names import check_text

__all__ = ["VersionRange"]

LONGEST = 1024
_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\S.*)", re.DOTALL)
_VERSION = re.compile(r"[vV]?([0-9]+(?:\.[0-9]+)*)(?:[-._]?([^+]+))?(?:\+.*)?", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


class _Order(NamedTuple):
    numbers: tuple[int, ...]
    final: bool
    before: tuple[tuple[bool, int, str], ...]


class _Clause(NamedTuple):
    operator: str
    text: str
    order: _Order | None

    def holds(self, text: str, order: _Order | None) -> bool:
        if order is None or self.order is None:
            return self.operator in ("==", "!=") and _COMPARE[self.operator](text, self.text)
        if self.operator == "<" and self.order.final and order.numbers == self.order.numbers:
            return False
        return _COMPARE[self.operator](order, self.order)


class VersionRange:
    """`VersionRange(">=1.4,<2").takes("1.5.0")`. Raises InvalidValue for a text that is no range."""

    def __init__(self, text: str) -> None:
        self.text = check_text("version", text, LONGEST)
        self._clauses = () if _is_plain(text) else tuple(_clause(text, part.strip()) for part in text.split(","))

    def takes(self, version: str) -> bool:
        """Whether a version is in the range."""
        if not self._clauses:
            return version == self.text
        order = _order(version)
        return all(clause.holds(version, order) for clause in self._clauses)


def _is_plain(text: str) -> bool:
    return "," not in text and not text.lstrip().startswith(tuple("><=!~^"))


def _clause(text: str, part: str) -> _Clause:
    found = _CLAUSE.fullmatch(part)
    if found is None:
        rule = "must be one text, or clauses such as '>=1.4' with commas between them"
        raise InvalidValue("version", text, rule, ">=1.4,<2")
    sign, version = found.groups()
    order = _order(version)
    if order is None and sign not in ("==", "!="):
        raise InvalidValue(
            "version", text, f"{version!r} does not begin with a number, so nothing is above or below it"
        )
    return _Clause(sign, version, order)


def _order(version: str) -> _Order | None:
    found = _VERSION.fullmatch(version)
    if found is None:
        return None
    numbers = [int(number) for number in found[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    parts = found[2].split(".") if found[2] else []
    return _Order(tuple(numbers), not parts, tuple(_part(part) for part in parts))


def _part(part: str) -> tuple[bool, int, str]:
    is_number = part.isascii() and part.isdigit()
    return not is_number, int(part) if is_number else 0, part if not is_number else ""
