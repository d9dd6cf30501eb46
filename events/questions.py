"""What is asked of an adsumd about the past, and what it answers, in pages (JSON on the bus).

A moment is a revision or a time by the broker's clock, in seconds since 1970. Every page names the revision up to
which the answerer has folded the log, and from which revision on it knows the log whole.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from .description import Description
from .lifecycle import Health, Mode
from .names import Key
from .signals import Liveness

__all__ = ["EventsAsked", "Logged", "Moment", "Page", "Version", "VersionsAsked"]

T = TypeVar("T")


class Moment(msgspec.Struct, frozen=True):
    """A revision, or the last revision at or before a time. Neither: now."""

    revision: int | None = None
    time: float | None = None


class VersionsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of instances that held at some moment from `since` to `until`, both included, in order of
    `began_revision`; the world at a moment is asked with both the same. Empty names: all of them.

    `after` is the `next` of the page before.
    """

    namespace: str = ""
    service: str = ""
    id: str = ""
    since: Moment = Moment(revision=0)
    until: Moment = Moment()
    after: int = 0
    limit: int = 500


class EventsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The events of the log above `since` up to `until`, in order. Empty names and types: all of them."""

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

    `revision`: up to here the answerer has folded; `complete_from`: what was before it was removed.
    """

    revision: int
    complete_from: int
    since: int
    until: int
    items: tuple[T, ...]
    next: int = 0
