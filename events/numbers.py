"""The rules for numbers, checked where they are given."""

from __future__ import annotations

from collections.abc import Callable

from .errors import InvalidValue

__all__ = ["check_number", "check_wait"]


def check_number(field: str, value: float, rule: str, holds: Callable[[float], bool]) -> float:
    """Give `value` back if it is a number of which the rule holds, else raise InvalidValue.

    A truth value is no number here. Of NaN no comparison holds, so a rule that compares refuses it: as a time it would
    disorder the timers of a whole event loop.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
        raise InvalidValue(field, value, rule)
    return value


def check_wait(field: str, seconds: float) -> float:
    """Give `seconds` back if they can be waited for; below 0 is not at all."""
    return check_number(field, seconds, "must be a number of seconds", lambda number: number == number)
