"""Policies that keep nothing: random, pick first, and the two that compare two drawn at random.

The power of two choices (M. Mitzenmacher, 2001; Envoy, "Least request"): who is better of two drawn at random is nearly
as good as the best of all, takes no longer with many, and does not send everybody to the same one.
"""

from __future__ import annotations

import math
import random
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate

from adsum.events.numbers import check_number
from adsum.events.signals import Instance

from .policy import Picked, Policy, relative

__all__ = ["LeastOutstanding", "LowestLatency", "PickFirst", "RandomChoice"]

UNKNOWN = 1e6
"""Seconds that one counts as which nobody has an answer of and somebody waits for: it is tried by one at a time."""


class PickFirst(Policy):
    """Always the first by service and id, so that all callers who see the same agree on one."""

    def __init__(self) -> None:
        self._members: Sequence[Picked] = ()
        self._first: Picked | None = None

    def update(self, members: Sequence[Picked], missing: Sequence[Instance]) -> None:
        """See Policy."""
        self._members = members
        self._first = min(members, key=_name)

    def pick(self, key: str | bytes | None) -> Picked:
        """See Policy."""
        assert self._first is not None
        return self._first

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """By service and id."""
        return sorted(self._members, key=_name)


class RandomChoice(Policy):
    """Each as likely as it weighs. `draw`: a number from 0 to below 1."""

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._members: Sequence[Picked] = ()
        self._sums: list[float] = []

    def update(self, members: Sequence[Picked], missing: Sequence[Instance]) -> None:
        """See Policy."""
        self._members, self._sums = members, list(accumulate(relative(members)))

    def pick(self, key: str | bytes | None) -> Picked:
        """See Policy."""
        sums = self._sums
        return self._members[bisect(sums, self._draw() * sums[-1])]

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """In random order, the heavy ones more likely early (Efraimidis and Spirakis, 2006)."""
        drawn = [math.log(1 - self._draw()) / weight for weight in relative(self._members)]
        return [self._members[n] for n in sorted(range(len(drawn)), key=drawn.__getitem__, reverse=True)]


class _BetterOfTwo(Policy):
    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._members: Sequence[Picked] = ()

    def update(self, members: Sequence[Picked], missing: Sequence[Instance]) -> None:
        self._members = members

    def _two(self) -> tuple[Picked, Picked]:
        members, draw = self._members, self._draw
        count = len(members)
        if count == 1:
            return members[0], members[0]
        one, other = int(draw() * count), int(draw() * (count - 1))
        return members[one], members[other if other < one else other + 1]

    def _sorted(self, cost: Callable[[Picked], float]) -> list[Picked]:
        draw = self._draw
        return sorted(self._members, key=lambda picked: (cost(picked), draw()))


class LeastOutstanding(_BetterOfTwo):
    """Of two at random the one of whom this process awaits fewer answers for its weight. `draw`: 0 to below 1."""

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        super().__init__(draw)

    def pick(self, key: str | bytes | None) -> Picked:
        """See Policy."""
        one, other = self._two()
        return one if _load(one) <= _load(other) else other

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """The least of all first; equal ones in random order."""
        return self._sorted(_load)


class LowestLatency(_BetterOfTwo):
    """Of two at random the one from whom an answer is expected sooner: peak EWMA, as in Finagle.

    What is expected is the measured latency (`Calls.latency`, faded by the time since), times the calls under way and
    this one, by weight. One that nobody called yet comes first, and while its first call is under way last.
    `decay`: seconds in which a measurement fades to 1/e.
    """

    def __init__(
        self,
        decay: float = 10.0,
        *,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(draw)
        self._decay, self._clock = check_number("decay", decay, "must be above 0", lambda s: s > 0), clock

    def pick(self, key: str | bytes | None) -> Picked:
        """See Policy."""
        one, other = self._two()
        now = self._clock()
        return one if self._cost(one, now) <= self._cost(other, now) else other

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """The soonest of all first; equal ones in random order."""
        now = self._clock()
        return self._sorted(lambda picked: self._cost(picked, now))

    def _cost(self, picked: Picked, now: float) -> float:
        calls = picked.calls
        if calls.latency:
            expected = calls.latency * math.exp((calls.measured_at - now) / self._decay)
        else:
            expected = UNKNOWN if calls.outstanding else 0.0
        return expected * (calls.outstanding + 1) / picked.weight


def _load(picked: Picked) -> float:
    return (picked.calls.outstanding + 1) / picked.weight


def _name(picked: Picked) -> str:
    return picked.name
