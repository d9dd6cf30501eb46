"""What is asked of an adsumd about the past, and what it answers, in pages (JSON on the bus).

A moment is a revision or a time by the broker's clock, in seconds since 1970. An answer at a revision is a function
of the log up to there, whoever gives it and whenever: what came later is not in it. Every page names the epoch, the
revision up to which the answerer has folded the log, and from which revision on it knows the log whole.

The broker's clock is that of whichever server leads the log, so after a change of leader a message may bear an earlier
time than the one before it. The last revision at or before a time is the highest one that bears no later time: a
moment means the last time at which the clock showed it, and a later moment is never an earlier revision.
"""

from __future__ import annotations

import difflib
import math
from typing import Any, Generic, TypeVar, get_args

import msgspec

from .description import Description
from .errors import InvalidValue
from .lifecycle import Event, Health, Mode
from .names import Key, check_label
from .signals import Liveness

__all__ = [
    "ENDPOINTS",
    "EVENT_TYPES",
    "MOST_ROWS",
    "EventsAsked",
    "Logged",
    "Moment",
    "Page",
    "Status",
    "Version",
    "VersionsAsked",
    "WorldAsked",
    "check_question",
    "continued",
]

T = TypeVar("T")
Q = TypeVar("Q", "VersionsAsked", "WorldAsked", "EventsAsked", "VersionsAsked | WorldAsked | EventsAsked")
ENDPOINTS = ("instances", "world", "history", "events", "status")
"""What may be asked: the last token of the subject (`subjects.ask`)."""
EVENT_TYPES = tuple(str(kind.__struct_config__.tag) for kind in get_args(Event))
MOST_ROWS = 5_000
"""Items of a page, whatever its `limit`."""
_MOST = (1 << 63) - 1


class Moment(msgspec.Struct, frozen=True):
    """A revision, or the last revision at or before a time. Neither: now."""

    revision: int | None = None
    time: float | None = None


class VersionsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of instances that held at some moment from `since` to `until`, both included, in order of
    `began_revision`; the world at a moment is asked with both the same. Empty names: all of them.

    How a version ended is told where that was not after `until`. A `since` before the log, or at revision 0, is the
    beginning of what is kept. `after` is the `next` of the page before.
    """

    namespace: str = ""
    service: str = ""
    id: str = ""
    since: Moment = Moment(revision=0)
    until: Moment = Moment()
    after: int = 0
    limit: int = 500


class WorldAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Everybody who was there at a moment: the versions that held then. Empty names: all of them."""

    namespace: str = ""
    service: str = ""
    id: str = ""
    at: Moment = Moment()
    after: int = 0
    limit: int = 500


class EventsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The events of the log above `since` up to `until`, in order. Empty names and types: all of them.

    A `since` before the log, or at revision 0, is the beginning of what is kept.
    """

    namespace: str = ""
    service: str = ""
    id: str = ""
    types: tuple[str, ...] = ()
    since: Moment = Moment(revision=0)
    until: Moment = Moment()
    after: int = 0
    limit: int = 500


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an instance: which event began it and which ended it (no `ended_*` while it holds)."""

    namespace: str
    service: str
    id: str
    term: str
    began_revision: int
    began_at: float
    began_by: str
    ended_revision: int | None = None
    ended_at: float | None = None
    ended_by: str | None = None
    liveness: Liveness
    health: Health
    mode: Mode
    reason: str = ""
    registered_at: float
    description: Description

    @property
    def key(self) -> Key:
        """What names it."""
        return Key(self.namespace, self.service, self.id)

    @property
    def routable(self) -> bool:
        """Up, not critical, serving: fit to be called."""
        return self.liveness == "up" and self.health != "critical" and self.mode == "serving"


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """One event as it stands in the log; `event` is its JSON as it was said."""

    revision: int
    time: float
    namespace: str
    service: str
    id: str
    event: msgspec.Raw

    @property
    def key(self) -> Key:
        """What it is about."""
        return Key(self.namespace, self.service, self.id)


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Part of an answer. `since` and `until` are the revisions that the asked moments came to; `next` 0: the last page.

    A page may be empty and not the last. Whoever asks for the next one asks with the revisions of this one.
    `revision`: up to here the answerer has folded; `complete_from`: what was before it was removed.
    """

    revision: int
    complete_from: int
    since: int
    until: int
    items: tuple[T, ...]
    next: int = 0
    epoch: str = ""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What one adsumd knows of itself and its catalog. `head`: the running hash at `revision`, in hex.

    `leads`: whether it writes the topology and judges; `rejected`: how many messages of the log were set aside.
    """

    epoch: str
    revision: int
    complete_from: int
    head: str
    catalog: str
    daemon: str
    leads: bool
    rejected: int


def check_question(asked: VersionsAsked | WorldAsked | EventsAsked) -> None:
    """Raise InvalidValue for a question that nobody could answer, whatever the log holds. Pure."""
    for field, name in (("namespace", asked.namespace), ("service", asked.service), ("instance id", asked.id)):
        if name:
            check_label(field, name)
    for field, number, least in (("after", asked.after, 0), ("limit", asked.limit, 1)):
        if not least <= number <= _MOST:
            raise InvalidValue(field, number, f"must be a whole number from {least} on")
    if isinstance(asked, WorldAsked):
        _check_moment("at", asked.at)
        return
    _check_moment("since", asked.since)
    _check_moment("until", asked.until)
    for kind in asked.types if isinstance(asked, EventsAsked) else ():
        if kind not in EVENT_TYPES:
            close = difflib.get_close_matches(kind, EVENT_TYPES, n=1)
            raise InvalidValue("type", kind, f"is none of {', '.join(EVENT_TYPES)}", close[0] if close else None)


def continued(asked: Q, page: Page[Any]) -> Q:
    """The question for the page after this one, at the revisions that this one came to. Pure."""
    until = Moment(revision=page.until)
    if isinstance(asked, WorldAsked):
        return msgspec.structs.replace(asked, at=until, after=page.next)
    return msgspec.structs.replace(asked, since=Moment(revision=page.since), until=until, after=page.next)


def _check_moment(field: str, moment: Moment) -> None:
    if moment.revision is not None and moment.time is not None:
        raise InvalidValue(field, moment, "must be a revision or a time, not both")
    if moment.revision is not None and moment.revision < 0:
        raise InvalidValue(field, moment.revision, "a revision is a whole number from 0 on")
    if moment.time is not None and not math.isfinite(moment.time):
        raise InvalidValue(field, moment.time, "must be a number of seconds since 1970")
