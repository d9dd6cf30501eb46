"""The set of one service: who is present, in which state. Pure, and the same whatever order it hears things in.

Per instance the higher (epoch, revision) wins, wherever it came from. Who left is remembered for a while, so that an
older state that comes late brings nobody back.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

from adsum.events.digest import Digest
from adsum.events.signals import Departed, Instance, ServiceMark, Topology

__all__ = ["EMPTY", "Cache", "Change", "ChangeKind", "differences"]

REMEMBERED_GONE = 256
REMEMBERED_DIGESTS = 256
OVERTAKEN_WITHIN = 4.0
"""Seconds for which a set of the past may still match: a mark on its way is overtaken by changes of the last moments.
Without the limit a change that somebody invented would excuse the true marks for ever."""
EMPTY = Digest().hex()

ChangeKind: TypeAlias = Literal["joined", "changed", "left"]


class Change(NamedTuple):
    """One difference. `before` is None where it joined, `after` where it left; then `departed` tells how, if known."""

    before: Instance | None
    after: Instance | None
    departed: Departed | None = None

    @property
    def kind(self) -> ChangeKind:
        """joined, changed or left."""
        if self.before is None:
            return "joined"
        return "left" if self.after is None else "changed"

    @property
    def instance(self) -> Instance:
        """The latest that is known of it: after, or before where it left."""
        instance = self.after or self.before
        assert instance is not None
        return instance


class Cache:
    """`present` maps ids to instances; treat it as read-only."""

    __slots__ = ("_digest", "_epochs", "_gone", "_recent", "present")

    def __init__(self) -> None:
        self.present: dict[str, Instance] = {}
        self._gone: dict[str, Departed] = {}
        self._digest = Digest()
        self._epochs: Counter[str] = Counter()  # of those who are present
        self._recent: deque[tuple[str, str, int, float]] = deque(maxlen=REMEMBERED_DIGESTS)
        """Digests that were left: for which epoch and revision, and when."""

    def apply(self, told: Topology, now: float) -> Change | None:
        """Take in a state or a tombstone; what it changed, None if it was known or older."""
        before, was = self.present.get(told.id), self._digest.hex()
        self.load(told)
        self._forget_oldest()
        after = self.present.get(told.id)
        if after is before:
            return None
        self._recent.append((was, told.epoch, told.revision, now))
        return Change(before, after, told if isinstance(told, Departed) else None)

    def load(self, told: Topology) -> None:
        """Take in one message of a snapshot. Sets on the way to the whole match no mark; `loaded` ends it."""
        if not self._take(told):
            return
        before = self.present.get(told.id)
        if before is not None:
            self._take_out(before)
        if isinstance(told, Instance):
            self._put(told)
        else:
            self._bury(told)

    def loaded(self) -> None:
        """The snapshot is whole."""
        self._recent.clear()
        self._forget_oldest()

    def merge(self, other: Cache, now: float) -> list[Change]:
        """Take in all that another cache knows; what that changed here. Nobody leaves for being absent there."""
        told: list[Topology] = [*other.present.values(), *other._gone.values()]
        return [change for one in told if (change := self.apply(one, now)) is not None]

    def matches(self, mark: ServiceMark, now: float) -> bool:
        """Whether this is the set that a mark tells of, or was until a change later than all that the mark knows.

        Then the mark was overtaken on its way. A mark that knows of something later was not: the set came back to
        what it was (empty, most often), and how was missed here.
        """
        if self._epochs.keys() - {mark.epoch}:
            return False
        if mark.digest == self._digest.hex():
            return mark.count == len(self.present)
        return any(
            was == mark.digest and epoch == mark.epoch and revision > mark.revision and now - left <= OVERTAKEN_WITHIN
            for was, epoch, revision, left in self._recent
        )

    def _take(self, told: Topology) -> bool:
        known = self.present.get(told.id) or self._gone.get(told.id)
        return known is None or (told.epoch, told.revision) > (known.epoch, known.revision)

    def _put(self, told: Instance) -> None:
        self._gone.pop(told.id, None)
        self.present[told.id] = told
        self._epochs[told.epoch] += 1
        self._digest.add(told.id, told.revision)

    def _take_out(self, before: Instance) -> None:
        self._digest.remove(before.id, before.revision)
        self._epochs[before.epoch] -= 1
        if not self._epochs[before.epoch]:
            del self._epochs[before.epoch]

    def _bury(self, told: Departed) -> None:
        self.present.pop(told.id, None)
        self._gone.pop(told.id, None)
        self._gone[told.id] = told

    def _forget_oldest(self) -> None:
        if len(self._gone) > REMEMBERED_GONE:
            for id in list(islice(self._gone, len(self._gone) - REMEMBERED_GONE)):
                del self._gone[id]


def differences(old: Cache, new: Cache) -> list[Change]:
    """What changes for those who saw `old` and see `new` from now on."""
    changes = []
    for id, after in new.present.items():
        before = old.present.get(id)
        if before is None or (before.epoch, before.revision) != (after.epoch, after.revision):
            changes.append(Change(before, after))
    gone = (before for id, before in old.present.items() if id not in new.present)
    return changes + [Change(before, None, new._gone.get(before.id)) for before in gone]
