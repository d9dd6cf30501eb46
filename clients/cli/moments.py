"""Moments as people write them: "2026-01-31T14:32", "yesterday 14:32", "-2h", "now", or the revision "@1234"."""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

import click

from adsum.events.durations import parse_duration
from adsum.events.errors import InvalidValue
from adsum.events.questions import Moment

__all__ = ["MOMENT", "TIMES", "Dated", "MomentType", "check_order", "local", "parse_moment"]

REST = 0.000999
"""Seconds by which a time to the millisecond, as commands print that of an event, may be cut: the event counts."""
AHEAD = 5.0
"""Seconds by which the broker's clock may be ahead of this machine's, so that a time it just gave is none to come."""
RULE = (
    'must be a date or a time such as "2026-01-31T14:32", "14:32", "yesterday 14:32", "-2h" (two hours ago) or "now", '
    'or a revision such as "@1234"'
)
TIMES = """\b
A TIME is one of:
  2026-01-31T14:32       a local time; also with seconds (:05.123), with a
                         zone (Z or +01:00), or a space instead of the T
  14:32                  the same, today; yesterday 14:32
  2026-01-31, today      when that day began; also yesterday
  -2h, -90m, "-3d 4h"    that long ago by the clock of this machine
  now
  @1234                  a revision: a SEQUENCE of adsum log
A time means the log up to that time, by the clock of the broker; one to the
millisecond up to its end, so an event is in what its printed time means."""
"""The end of the help of every command that takes a time."""

_MINUS = "\u2212"
_MOST = (1 << 63) - 1
_DAY = "(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2}|today|yesterday)"
_CLOCK = (
    r"(?P<hour>[01]?[0-9]|2[0-3])(?P<rest>:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?)(?P<zone> ?(Z|[+-][0-9]{2}:[0-9]{2}))?"
)
_SHAPE = re.compile(f"{_DAY}|({_DAY.replace('day', 'date', 1)}[ T])?{_CLOCK}", re.IGNORECASE)


def parse_moment(text: str, now: float, zone: tzinfo | None = None, field: str = "time") -> Moment:
    """The moment that `text` means at `now` (seconds since 1970). Pure but for the machine's own zone.

    `zone`: that of a time that names none; None is the machine's. Raises InvalidValue for what is no moment, for a
    time to come, and for a local time that was not or was twice that day because the clocks were changed.
    """
    bare = " ".join(text.split())
    if bare.lower() == "now":
        return Moment()
    if re.fullmatch("@[0-9]+", bare) and int(bare[1:]) <= _MOST:
        return Moment(revision=int(bare[1:]))
    seconds = _ago(bare, now) if bare.startswith("-") else _time(text, bare, now, zone, field)
    if seconds is None:
        raise InvalidValue(field, text, RULE, _meant(bare))
    if seconds > now + AHEAD:
        yesterday = f"yesterday {bare}" if re.fullmatch(_CLOCK, bare) else None
        raise InvalidValue(field, text, f"is in the future: it is {local(now, zone)} here", yesterday)
    return Moment(time=seconds)


def check_order(first: Moment, second: Moment, field: str, other: str) -> None:
    """Raise InvalidValue if `second` is before `first`, as far as that is known without the log. Pure."""
    if first.revision is not None or second.revision is not None:
        backwards = first.revision is not None and second.revision is not None and second.revision < first.revision
    else:  # no time: now
        backwards = second.time is not None and (first.time is None or second.time < first.time)
    if backwards:
        told = f"@{second.revision}" if second.time is None else local(second.time)
        raise InvalidValue(field, told, f"must not be before {other}")


def local(seconds: float, zone: tzinfo | None = None, digits: str = "milliseconds") -> str:
    """A time as `parse_moment` reads it back, cut to some digits, in a zone (None: the machine's)."""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone(zone).isoformat(timespec=digits).replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} seconds since 1970"


def _ago(bare: str, now: float) -> float | None:
    if not bare[-1].isalpha():  # a number without a unit might mean anything
        return None
    try:
        return now - parse_duration(bare[1:])
    except InvalidValue:
        return None


def _time(text: str, bare: str, now: float, zone: tzinfo | None, field: str) -> float | None:
    shape = _SHAPE.fullmatch(bare)
    if shape is None:
        return None
    try:
        if shape["day"]:
            return _instants(f"{_date(shape['day'], now, zone)}T00:00", zone)[
                0
            ]  # one that begins twice: the first time
        said = datetime.strptime(shape["zone"].strip().upper(), "%z").tzinfo if shape["zone"] else zone
        day = _date(shape["date"] or "today", now, said)
        first, second = _instants(f"{day}T{shape['hour']:0>2}{shape['rest']}", said)
    except (ValueError, OverflowError, OSError):  # the 30th of February, year 0
        return None
    if first > second:
        raise InvalidValue(field, text, "was not: the clocks were put forward over it", local(first, said, "auto"))
    if first < second:
        once, again = (local(one, said, "auto") for one in (first, second))
        rule = f"was twice, because the clocks were put back: say {once} or {again}"
        raise InvalidValue(field, text, rule)
    return first + REST if re.fullmatch(".*[.][0-9]{3}", shape["rest"]) else first


def _date(day: str, now: float, zone: tzinfo | None) -> date:
    if day[0].isdigit():
        return date.fromisoformat(day)
    today = datetime.fromtimestamp(now, UTC).astimezone(zone).date()
    return today - timedelta(days=1 if day.lower() == "yesterday" else 0)


def _instants(said: str, zone: tzinfo | None) -> tuple[float, float]:
    """The instants of a local time, read with the clock of before and with that of after a change of clocks.

    Both are the same but where the clocks were put back over it (the first is earlier) or forward (it is later).
    """
    first, second = (datetime.fromisoformat(said).replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    return first, second


def _meant(bare: str) -> str | None:
    """What was perhaps meant: a duration without its sign, a revision without its mark."""
    if re.fullmatch("[0-9]+", bare):
        return f"@{bare}"
    if _ago(f"-{bare}", 0.0) is not None:
        return f"-{bare}"
    return None


class MomentType(click.ParamType[Moment]):
    """A Moment from the command line; whatever is none raises InvalidValue, which names the rule."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        """The moment that `value` means now."""
        if isinstance(value, Moment):
            return value
        text = f"-{value[1:]}" if value.startswith(_MINUS) else value
        return parse_moment(text, time.time(), field=(param.name or "time") if param is not None else "time")


MOMENT = MomentType()


class Dated(click.Command):
    """A command that takes "-2h" as an argument: a dash before a digit begins a time, never an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, which takes whatever begins with the usual dash for an option."""
        return super().parse_args(ctx, [_MINUS + arg[1:] if re.match("-[0-9]", arg) else arg for arg in args])
