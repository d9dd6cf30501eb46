"""What a directory knows of the services it follows, and how that is proven. Pure: the time is an argument.

The leader says a mark of every service that has instances, every two seconds, then a mark of the namespace with the
same round number: a service without one is empty. A set that matches the mark is proven complete. After whatever
may have lost a message (a reconnect, another epoch, two marks in a row that do not match) a *candidate* is read from
the snapshot; it replaces what is shown only once a mark confirms it, so a half-written topology empties nobody's
directory. Until then it only adds what is newer.

The epoch is what the log itself says it is (`believe`). A message that bears another one changes nothing: it is only
a hint that the log may have become another, and the log is to be asked (`unsure`).
"""

from __future__ import annotations

import math
from collections import deque

from adsum.events.signals import NamespaceMark, ServiceMark, Topology

from .cache import EMPTY, Cache, Change, differences

__all__ = ["Census", "Followed"]


class Followed:
    """One service. `shown` is None until the first snapshot is whole; `loading` is the snapshot being read."""

    __slots__ = ("_expected", "candidate", "doubted", "loading", "proven_at", "rounds", "shown")

    def __init__(self, shown: Cache | None, now: float) -> None:
        self.shown = shown
        self.candidate: Cache | None = None
        self.loading: Cache | None = None
        self.proven_at = now if shown is not None else -math.inf
        self.rounds: deque[int] = deque(maxlen=4)
        self.doubted = False
        self._expected: ServiceMark | None = None

    def take(self, told: Topology, now: float) -> list[Change]:
        """A change that was announced."""
        for cache in (self.loading, self.candidate):
            if cache is not None:
                cache.apply(told, now)
        change = self.shown.apply(told, now) if self.shown is not None else None
        changes = [] if change is None else [change]
        return changes + self._compare(now) if self._expected is not None else changes

    def expect(self, mark: ServiceMark, now: float) -> list[Change]:
        """The leader told of the set. One that is not reached before the next, nor the next at once, is doubted."""
        missed = self._expected is not None
        self._expected = mark
        changes = self._compare(now)
        if missed and self._expected is not None and self.loading is None:
            self.doubted = True
        return changes

    def forget_marks(self) -> None:
        """What was told so far is of another log."""
        self.rounds.clear()
        self._expected, self.doubted = None, False

    def loaded(self, now: float) -> list[Change]:
        """The snapshot is whole: the first one is shown, a later one is a candidate that adds what is newer."""
        cache, self.loading, self.doubted = self.loading, None, False
        if cache is None:
            return []
        cache.loaded()
        if self.shown is None:
            self.shown, self.proven_at = cache, now
            return [Change(None, instance) for instance in cache.present.values()] + self._compare(now)
        self.candidate = cache
        changes = self.shown.merge(cache, now) + self._compare(now)
        self._expected = None  # a mark from before the snapshot proves nothing against it
        return changes

    def _compare(self, now: float) -> list[Change]:
        if self._expected is None or self.shown is None:
            return []
        changes: list[Change] = []
        if not self.shown.matches(self._expected, now):
            if self.candidate is None or not self.candidate.matches(self._expected, now):
                return []
            changes = differences(self.shown, self.candidate)
            self.shown = self.candidate
        self.candidate, self._expected, self.doubted, self.proven_at = None, None, False, now
        return changes


class Census:
    """All services that a directory follows; none named: every service of the namespace.

    Methods give the changes to what is shown. `unsure` says that the log is to be asked for its epoch (see `believe`),
    `wanted` that a snapshot is to be read (see `begin_load`).
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        self._named = services
        self.followed = {service: Followed(None, 0.0) for service in services}
        self.loaded = False
        self.epoch = ""
        self.unsure = True
        self.marked_at = -math.inf
        self.reason = "it is new"
        self._wanted: set[str] | None = None
        self._want_all = True
        self._loading_all = False
        self._proven_at = -math.inf
        self._round: int | None = None
        self._partly_heard = True

    # ---- what is shown

    @property
    def proven_at(self) -> float:
        """When everything that is shown was last proven complete; minus infinity before it was loaded."""
        if not self.loaded:
            return -math.inf
        return min((followed.proven_at for followed in self.followed.values()), default=self._proven_at)

    def shown(self, service: str) -> Cache | None:
        """What is known of a service; None if that is nothing yet."""
        followed = self.followed.get(service)
        if followed is None:
            return Cache() if self.loaded and not self._named else None
        return followed.shown

    # ---- what is heard

    def take(self, told: Topology, now: float) -> list[Change]:
        """A change of an instance."""
        if not self._is_of_now(told):
            return []
        followed = self._of(told.service)
        return followed.take(told, now) if followed is not None else []

    def service_mark(self, service: str, mark: ServiceMark, now: float) -> list[Change]:
        """The mark of a service that has instances."""
        if not self._is_of_now(mark):
            return []
        self.marked_at = now
        followed = self._of(service)
        if followed is None:
            return []
        followed.rounds.append(mark.round)
        changes = followed.expect(mark, now)
        self._see_doubt(service, followed)
        return changes

    def namespace_mark(self, mark: NamespaceMark, now: float) -> list[Change]:
        """The end of a round. The round before is judged only now, since the client's own tasks interleave."""
        if not self._is_of_now(mark):
            return []
        self.marked_at = now
        if self._partly_heard:
            self._partly_heard = False
            return []
        over, self._round = self._round, mark.round
        if over is None or over == mark.round:
            return []
        self._proven_at = now
        empty = ServiceMark(epoch=mark.epoch, round=mark.round, revision=mark.revision, count=0, digest=EMPTY)
        changes: list[Change] = []
        for service, followed in list(self.followed.items()):
            if over not in followed.rounds and mark.round not in followed.rounds:
                changes += followed.expect(empty, now)
                self._see_doubt(service, followed)
                self._drop_if_empty(service, followed)
        return changes

    def reconnected(self) -> None:
        """The connection was made anew: anything may have been missed, and the log may be another one."""
        self.unsure = True
        self._forget_round()
        self.want_all("the connection was made anew")

    def believe(self, epoch: str) -> None:
        """The log said which one it is. Of another one everything is read anew, and no mark said before counts."""
        self.unsure = False
        if epoch == self.epoch:
            return
        if self.epoch:
            self.want_all("the log is another one")
        self.epoch = epoch
        self._forget_round()
        for followed in self.followed.values():
            followed.forget_marks()

    # ---- reading a snapshot

    @property
    def wanted(self) -> bool:
        """Whether a snapshot is to be read."""
        return self._want_all or bool(self._wanted)

    def want_all(self, reason: str) -> None:
        """Read everything anew."""
        self._want_all, self.reason = True, reason

    def begin_load(self) -> tuple[str, ...]:
        """Begin with an empty candidate of what is wanted; the services to read, none for the whole namespace."""
        self._loading_all = self._want_all
        services = tuple(self.followed) if self._want_all else tuple(self._wanted or ())
        self._want_all, self._wanted = False, None
        for service in services:
            if service in self.followed:
                self.followed[service].loading = Cache()
        return self._named if self._loading_all else services

    def load(self, told: Topology, now: float) -> None:
        """One message of the snapshot. A state of a log before this one stands there until it is told anew."""
        if told.epoch > self.epoch:
            self.unsure = True
            return
        followed = self._of(told.service)
        if followed is not None and followed.loading is not None:
            followed.loading.load(told)

    def end_load(self, now: float) -> list[Change]:
        """The snapshot is whole."""
        changes: list[Change] = []
        for followed in self.followed.values():
            changes += followed.loaded(now)
        if not self.loaded:
            self._proven_at = now
        self.loaded, self._loading_all = True, False
        return changes

    def abandon_load(self) -> None:
        """It was cut short; what was being read is wanted again."""
        for service, followed in self.followed.items():
            if followed.loading is not None and followed.shown is not None:
                followed.loading = None
                self._want(service)
        if self._loading_all or not self.loaded:
            self._loading_all, self._want_all = False, True

    # ---- helpers

    def _of(self, service: str) -> Followed | None:
        followed = self.followed.get(service)
        if followed is None and not self._named:
            # That nobody was there is as well proven as the namespace was: to hear of it now proves nothing new.
            followed = self.followed[service] = Followed(Cache() if self.loaded else None, self._proven_at)
            followed.loading = Cache() if self._loading_all else None
        return followed

    def _is_of_now(self, told: Topology | ServiceMark | NamespaceMark) -> bool:
        self.unsure = self.unsure or told.epoch != self.epoch
        return told.epoch == self.epoch

    def _forget_round(self) -> None:
        """The round that runs was heard in part."""
        self._round, self._partly_heard = None, True

    def _see_doubt(self, service: str, followed: Followed) -> None:
        if followed.doubted:
            followed.doubted = False
            self.reason = f"two marks of {service} in a row did not match"
            self._want(service)

    def _want(self, service: str) -> None:
        self._wanted = {*(self._wanted or ()), service}

    def _drop_if_empty(self, service: str, followed: Followed) -> None:
        """In a whole namespace services come and go; nothing is kept of those that went."""
        settled = followed.shown is not None and not followed.shown.present and followed.candidate is None
        if not self._named and settled and followed.loading is None:
            del self.followed[service]
