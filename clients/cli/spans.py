"""How long something was so, and how long it was not: the sums behind `adsum uptime`. Pure.

Versions come in the order of the log, by which also what follows on what is decided; their times, which a change of the
broker's leader may put back a little, only tell how long it took, and never count twice.
"""

from __future__ import annotations

from typing import NamedTuple

from adsum.events.names import Key
from adsum.events.questions import Version

__all__ = ["Cover", "Uptime", "Uptimes", "Window"]


class Window(NamedTuple):
    """What is looked at, in seconds since 1970: from `since` (None: from whoever's first registration) to `until`."""

    since: float | None
    until: float


class Cover:
    """The union of spans that come in the order in which they begin, inside a window.

    `covered`: its length, `longest_gap`: the longest time between two of its parts, or after the last one, once `close`
    was called; `ends`: how many of its parts ended.
    """

    def __init__(self, since: float, until: float) -> None:
        self.covered = self.longest_gap = 0.0
        self.ends = 0
        self._until = until
        self._reached = since
        """Up to here everything is counted, as covered or as a gap."""
        self._end: int | None = 0
        """The revision at which the last part ends; None: it lasts."""

    def add(self, began: int, began_at: float, ended: int | None, ended_at: float | None) -> None:
        """One span, by its revisions and its times; no `ended`: it lasts."""
        if self._end is not None and began > self._end:
            self.ends += self._end > 0
            self._gap(began_at)
        if self._end is not None and (ended is None or ended > self._end):
            self._end = ended
        upto = self._until if ended_at is None else min(ended_at, self._until)
        self.covered += max(0.0, upto - self._reached)
        self._reached = max(self._reached, upto)

    def close(self) -> None:
        """No more is added."""
        if self._end is not None:
            self.ends += self._end > 0
            self._gap(self._until)

    def _gap(self, upto: float) -> None:
        upto = min(upto, self._until)
        self.longest_gap = max(self.longest_gap, upto - self._reached)
        self._reached = max(self._reached, upto)


class Uptime(NamedTuple):
    """Of an instance, or of a service (`id` is ""): what its spans came to. Times in seconds.

    `counted`: the time that is looked at; `routable`, `present`: how much of it it could be called, was there;
    `left`: how often it left; `longest_gap`: the longest time in which it could not be called, also one that lasts.
    """

    service: str
    id: str
    counted_from: float
    counted: float
    routable: float
    present: float
    left: int
    longest_gap: float

    @property
    def share_routable(self) -> float | None:
        """The share of the time in which it could be called; None of no time at all."""
        return self.routable / self.counted if self.counted else None

    @property
    def share_present(self) -> float | None:
        """The share of the time in which it was there; None of no time at all."""
        return self.present / self.counted if self.counted else None

    @property
    def between(self) -> float | None:
        """The mean time between departures: the time in which it was there, for each time it left."""
        return self.present / self.left if self.left else None


class _Covers:
    """What was seen of one instance, or of one service."""

    def __init__(self, since: float, until: float) -> None:
        self.since, self.until = min(since, until), until
        self.present, self.routable = Cover(self.since, until), Cover(self.since, until)

    def add(self, version: Version) -> None:
        span = (version.began_revision, version.began_at, version.ended_revision, version.ended_at)
        self.present.add(*span)
        if version.routable:
            self.routable.add(*span)

    def close(self, service: str, id: str) -> Uptime:
        self.present.close()
        self.routable.close()
        return Uptime(
            service,
            id,
            self.since,
            self.until - self.since,
            self.routable.covered,
            self.present.covered,
            self.present.ends,
            self.routable.longest_gap,
        )


class Uptimes:
    """The uptime of every instance and every service, from the versions that held in a window.

    `known`: who had registered before the window began. All others count from their first registration.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._known: set[tuple[str, str]] = set()
        self._of: dict[tuple[str, str], _Covers] = {}

    def knew(self, service: str, id: str) -> None:
        """An instance that had registered before the window began; told before any version of it."""
        self._known |= {(service, id), (service, "")}

    def add(self, version: Version) -> None:
        """One more version, in order of `began_revision`."""
        for name in (_instance(version.key), (version.service, "")):
            covers = self._of.get(name)
            if covers is None:
                covers = self._of[name] = _Covers(self._from(name, version), self._window.until)
            covers.add(version)

    def close(self) -> list[Uptime]:
        """By service, its own before those of its instances. Who was known and had no version was away all the time."""
        for name in self._known - self._of.keys():
            assert self._window.since is not None  # else nobody is known before it
            self._of[name] = _Covers(self._window.since, self._window.until)
        return [covers.close(*name) for name, covers in sorted(self._of.items())]

    def _from(self, name: tuple[str, str], first: Version) -> float:
        since = self._window.since
        if since is None:
            return first.began_at
        return since if name in self._known else max(since, first.began_at)


def _instance(key: Key) -> tuple[str, str]:
    return key.service, key.id
