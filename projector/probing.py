"""When to probe an endpoint that callers report as unreachable, and when what was found is enough. Pure; the clock is
passed in.

A report proves nothing, so it does nothing but have the endpoint probed: once, however many say it, and not again
for a while. Only what the probes find decides. Two in a row must fail before an instance is critical: between them
lies a second, and each waits long enough for the network to send a lost packet again, so that neither one packet nor
a queue that was full for a moment costs a healthy peer its callers. One that succeeds takes it back: to be wrong
about that costs two more probes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from adsum.events.names import Key

__all__ = ["FAILURES", "Finding", "Probing", "Target"]

FAILURES = 2
"""Probes that must fail in a row before an instance is critical."""
BETWEEN = 1.0
"""Seconds from one that failed to the next."""
REST = 3.0
"""Seconds after the last probe in which reports do nothing but count."""
BACKOFF = (2.0, 60.0)
"""Seconds between two probes of one that is critical: at first, and at most."""
AT_ONCE = 16
"""Probes under way at the same time."""
MOST = 1024
"""Endpoints that are kept in mind; reports about more do nothing but count."""
MOST_CALLERS = 16
"""Callers of one endpoint that are told apart."""

Finding: TypeAlias = Literal["unreachable", "reachable", "nothing"]


class Target(NamedTuple):
    """One endpoint of one life of an instance."""

    key: Key
    term: str
    endpoint: str


class _State:
    """`due`: when to probe next, None: not at all. `rests_until`: when a report counts again."""

    __slots__ = ("callers", "due", "failures", "held", "rests_until", "under_way")

    def __init__(self) -> None:
        self.callers: set[str] = set()
        self.due: float | None = None
        self.rests_until = -math.inf
        self.under_way = self.held = False
        self.failures = 0


class Probing:
    """Decides what is probed when. `held` are those that are critical because of us: they are probed until they answer.

    `reports` and `probes` count what was heard and begun. Every time is that of `clock`, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.reports = self.probes = 0
        self._clock = clock
        self._states: dict[Target, _State] = {}

    @property
    def held(self) -> list[Target]:
        """Those that are critical because of us."""
        return [target for target, state in self._states.items() if state.held]

    def callers(self, target: Target) -> int:
        """How many different callers reported it since it was last found reachable; many count as `MOST_CALLERS`."""
        state = self._states.get(target)
        return len(state.callers) if state is not None else 0

    def count(self) -> None:
        """A report was heard that is about nobody who could be called."""
        self.reports += 1

    def heard(self, target: Target, caller: str) -> None:
        """A report was heard about somebody who is routable."""
        self.reports += 1
        state = self._states.get(target)
        if state is None:
            if len(self._states) >= MOST:
                return
            state = self._states[target] = _State()
        resting = self._clock() < state.rests_until
        if len(state.callers) < MOST_CALLERS and not resting:
            state.callers.add(caller[:128])
        if not (resting or state.held or state.under_way) and state.due is None:
            state.due = self._clock()

    def hold(self, target: Target) -> None:
        """It is critical because of us, or of the leader before: probe it until it answers."""
        state = self._states.setdefault(target, _State())
        state.held, state.failures, state.due = True, 0, self._clock() + BACKOFF[0]

    def release(self, target: Target) -> None:
        """It is critical no more, or not because of us: from now on only reports have it probed."""
        state = self._states.get(target)
        if state is not None:
            state.held, state.due = False, None
            self._rest(state)

    def again(self, target: Target) -> None:
        """What was found could not be said now: probe it once more before it is said."""
        state = self._states.get(target)
        if state is None:
            return
        state.due = self._clock() + BETWEEN
        if not state.held:
            state.failures = FAILURES - 1

    def begin(self) -> list[Target]:
        """What is to be probed now, the longest due first; it counts as under way until it is `found`."""
        now, free = self._clock(), self._free()
        due = [(state.due, target) for target, state in self._states.items() if state.due is not None]
        begun = [target for when, target in sorted(due) if when <= now][:free]
        for target in begun:
            self._states[target].under_way, self._states[target].due = True, None
        self.probes += len(begun)
        return begun

    def found(self, target: Target, reached: bool | None) -> Finding:
        """What a probe means: whether the endpoint was `reached`; None if the probe says nothing about it."""
        state = self._states.get(target)
        if state is None:
            return "nothing"
        state.under_way = False
        if state.held:
            state.failures = min(state.failures + 1, 16)
            state.due = self._clock() + min(BACKOFF[0] * 2 ** (state.failures - 1), BACKOFF[1])
            return "reachable" if reached else "nothing"
        state.failures = state.failures + 1 if reached is False else 0
        if 0 < state.failures < FAILURES:
            state.due = self._clock() + BETWEEN
            return "nothing"
        found: Finding = "unreachable" if state.failures else "nothing"
        self._rest(state, keep_callers=bool(state.failures))
        return found

    def wait(self) -> float:
        """Seconds until something can be begun, as far as is known now; infinite if nothing is due, or all are busy."""
        if not self._free():
            return math.inf
        due = [state.due for state in self._states.values() if state.due is not None]
        return max(min(due) - self._clock(), 0.0) if due else math.inf

    @property
    def idle(self) -> bool:
        """Whether nothing is due or under way."""
        return not any(state.under_way or state.due is not None for state in self._states.values())

    def tidy(self, lives: Callable[[Target], bool]) -> None:
        """Forget whose life is over, and those about whom there is nothing to be kept in mind."""
        now = self._clock()
        for target, state in list(self._states.items()):
            idle = state.due is None and not state.held and state.rests_until <= now
            if not state.under_way and (idle or not lives(target)):
                del self._states[target]

    def _free(self) -> int:
        return AT_ONCE - sum(state.under_way for state in self._states.values())

    def _rest(self, state: _State, keep_callers: bool = False) -> None:
        state.failures, state.rests_until = 0, self._clock() + REST
        if not keep_callers:
            state.callers.clear()
