"""Consistent hashing by key, with bounded load."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter

from adsum.events.numbers import check_number
from adsum.events.signals import Instance

from .outliers import Calls
from .policy import Picked, Policy
from .ring import Ring, position

__all__ = ["ConsistentHash"]

MOST_POINTS = 10_000
HEAVIEST = 4.0
"""The weight from which on points are not added; the bound of the load still tells heavier ones apart."""
AWAY = 8
"""So many, and a quarter of the members, keep their points while they are away."""

_calls, _name, _weight = attrgetter("calls"), attrgetter("name"), attrgetter("weight")


class ConsistentHash(Policy):
    """The same key goes to the same instance, in every process, as long as the instance is there.

    Each member has `points` for its weight (1: all, 0.5: half) on a circle (D. Karger et al., 1997); a key belongs to
    the next point. So when one leaves only its keys move, and only to those that are next. The points depend on the
    name of an instance, not on its life: with an id of its own it has its keys again after a restart.

    Nobody is given more than `bound` times its share of this selection's calls under way (V. Mirrokni, M. Thorup and
    M. Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016): the key of one that has as many goes to the next
    on the circle. That needs the calls to be told (`Selection.calling`).
    """

    def __init__(self, *, points: int = 40, bound: float = 1.25) -> None:
        rule = f"must be a whole number from 1 to {MOST_POINTS}"
        check_number("points", points, rule, lambda number: 1 <= number <= MOST_POINTS and number % 1 == 0)
        rule = "must be above 1: with 1 everybody would have to have the same load"
        check_number("bound", bound, rule, lambda number: number > 1)
        self._points, self._bound = points, bound
        self._ring = Ring()
        self._placed: dict[str, float] = {}  # who has points, and the weight they were given for
        self._away: dict[str, None] = {}  # of those who is no member, in the order in which they went
        self._members: dict[str, Picked] = {}
        self._calls: set[Calls] = set()
        self._whole = 1.0  # the weight of all
        self._loads: dict[Calls, int] = {}  # calls under way, also to who is no member any more
        self._load = 0  # of members

    def update(self, members: Sequence[Picked], missing: Sequence[Instance]) -> None:
        """See Policy."""
        self._calls = set(map(_calls, members))
        self._load = sum(load for calls, load in self._loads.items() if calls in self._calls)
        self._whole = min(sum(map(_weight, members)), sys.float_info.max)
        self._members = dict(zip(map(_name, members), members, strict=True))
        self._place(members)

    def _place(self, members: Sequence[Picked]) -> None:
        """Give points to who has none. Who is away keeps them for a while: most come back, and picks go past them."""
        placed, away = self._placed, self._away
        for name in [name for name in away if name in self._members]:
            del away[name]
        for picked in [picked for picked in members if placed.get(picked.name) != picked.weight]:
            self._ring.place(picked.name, max(1, round(self._points * min(picked.weight, HEAVIEST))))
            placed[picked.name] = picked.weight
        if len(placed) > len(members) + len(away):
            away |= dict.fromkeys(name for name in placed if name not in self._members)
        while len(away) > AWAY + len(members) // 4:
            name = next(iter(away))  # who is away for longest
            del away[name], placed[name]
            self._ring.place(name, 0)

    def pick(self, key: str | bytes | None) -> Picked:
        """See Policy. Raises InvalidValue without a key."""
        place = position(key)
        picked = self._members.get(self._ring.next(place))
        if picked is not None and self._has_room(picked):
            return picked
        return next(filter(self._has_room, self._from(place)))

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """In the order of the circle from the key on; those who have no room last."""
        found: dict[Picked, None] = {}
        for picked in self._from(position(key)):
            found[picked] = None
            if len(found) == len(self._members):
                break  # long before the circle is around
        return sorted(found, key=self._has_room, reverse=True)

    def _from(self, place: int) -> Iterator[Picked]:
        for name in self._ring.names_from(place):
            picked = self._members.get(name)
            if picked is not None:
                yield picked

    def _has_room(self, picked: Picked) -> bool:
        load = self._loads.get(picked.calls)
        if load is None:
            return True
        bound = self._bound * (self._load + 1) * (picked.weight / self._whole)
        return load < bound  # all bounds add up to more than the load, so somebody has room

    def begun(self, calls: Calls) -> None:
        """See Policy."""
        self._loads[calls] = self._loads.get(calls, 0) + 1
        self._load += calls in self._calls

    def ended(self, calls: Calls) -> None:
        """See Policy."""
        self._loads[calls] -= 1
        self._load -= calls in self._calls
        if not self._loads[calls]:
            del self._loads[calls]
