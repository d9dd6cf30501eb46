"""Policies by turns: round robin, and smooth weighted round robin.

Both are fair under change: who stays keeps its place, who joins waits for its turn, and who is away for a moment has
lost nothing unless its turn came meanwhile. So who left stays in line till its turn, and is dropped then.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from adsum.events.signals import Instance

from .outliers import Calls
from .policy import Picked, Policy, relative

__all__ = ["RoundRobin", "WeightedRoundRobin"]

GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, are spread as evenly as can be, however many there are (Knuth, TAOCP 3, section 6.4)."""
APART = math.pi - 3
"""Added to them, it keeps multiples of different strides apart: else rounding would decide whose turn it is."""


class RoundRobin(Policy):
    """One after the other, whatever they weigh. Between two turns of one who stays, each other who stays has one."""

    def __init__(self) -> None:
        self._line: deque[Calls] = deque()
        self._in_line: set[Calls] = set()
        self._members: dict[Calls, Picked] = {}

    def update(self, members: Sequence[Picked], missing: Sequence[Instance]) -> None:
        """See Policy."""
        self._members = {picked.calls: picked for picked in members}
        joining = [calls for calls in self._members if calls not in self._in_line]
        self._line.extend(joining)
        self._in_line.update(joining)
        if len(self._line) > 2 * len(self._members) + 16:  # they come and go faster than they have turns
            self._line = deque(calls for calls in self._line if calls in self._members)
            self._in_line = set(self._line)

    def pick(self, key: str | bytes | None) -> Picked:
        """See Policy."""
        line = self._line
        while True:
            calls = line.popleft()
            picked = self._members.get(calls)
            if picked is not None:
                line.append(calls)
                return picked
            self._in_line.discard(calls)

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """In the order of their turns."""
        return [picked for calls in self._line if (picked := self._members.get(calls)) is not None]


class _Turn:
    __slots__ = ("calls", "picked", "stride", "weight")

    def __init__(self, picked: Picked, weight: float) -> None:
        self.calls = picked.calls
        self.picked: Picked | None = picked
        self.weigh(weight)

    def weigh(self, weight: float) -> None:
        self.weight, self.stride = weight, 1 / weight


class WeightedRoundRobin(Policy):
    """By turns, as often as they weigh: with 5, 1 and 1 one of them has five turns in seven, spread over the seven.

    nginx's smooth weighted round robin looks at every member for each pick. This is stride scheduling (Waldspurger and
    Weihl, 1995), as Envoy does it with its queue of earliest deadlines: each member is due once a stride of
    virtual time, 1 / weight, and the next one due is picked, in O(log n). Each begins at a place of its own within its
    first stride, or many light ones would be due at the same moment. A member whose weight changes keeps the part of
    its stride that is left.
    """

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, _Turn]] = []  # when it is due, a number to break ties, whose turn
        self._turns: dict[Calls, _Turn] = {}
        self._now = 0.0
        self._joined = 0

    def update(self, members: Sequence[Picked], missing: Sequence[Instance]) -> None:
        """See Policy."""
        away = dict(self._turns)
        stretched: dict[Calls, float] = {}
        for picked, weight in zip(members, relative(members), strict=True):
            turn = away.pop(picked.calls, None)
            if turn is None:
                self._join(picked, weight)
                continue
            turn.picked = picked
            if weight != turn.weight:
                stretched[turn.calls] = turn.weight / weight
                turn.weigh(weight)
        for turn in away.values():
            turn.picked = None
        if stretched or len(self._queue) > 2 * len(members) + 16:
            self._line_up(stretched)

    def pick(self, key: str | bytes | None) -> Picked:
        """See Policy."""
        queue = self._queue
        while True:
            due, number, turn = queue[0]
            picked = turn.picked
            if picked is not None:
                self._now = due
                heapreplace(queue, (due + turn.stride, number, turn))
                return picked
            heappop(queue)
            del self._turns[turn.calls]

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """In the order in which their next turns come."""
        return [turn.picked for _, _, turn in sorted(self._queue) if turn.picked is not None]

    def _join(self, picked: Picked, weight: float) -> None:
        self._joined += 1
        turn = self._turns[picked.calls] = _Turn(picked, weight)
        begins = (self._joined * GOLDEN + APART) % 1 * turn.stride
        heappush(self._queue, (self._now + begins, self._joined, turn))

    def _line_up(self, stretched: Mapping[Calls, float]) -> None:
        """Without those who are away, and what is left of a stride made longer or shorter."""
        now, queue = self._now, self._queue
        self._queue = [
            (now + (due - now) * stretched.get(turn.calls, 1.0), number, turn)
            for due, number, turn in queue
            if turn.picked is not None
        ]
        heapify(self._queue)
        self._turns = {turn.calls: turn for _, _, turn in self._queue}
