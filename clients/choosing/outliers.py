"""Outliers: a circuit breaker for each endpoint, fed by this process's own calls. Pure: the clock is an argument.

The rules are those of Envoy's outlier detection (architecture overview, "Outlier detection", consecutive failures), and
for the way back those of a circuit breaker (M. Nygard, "Release It!"):

* after so many failures in a row an endpoint is ejected, for a time that grows with each ejection in a row up to a
  bound; for each interval that it was well since, one ejection is forgotten;
* when the time is over it is half open: one call is its trial, and no second one begins meanwhile. It closes
  the breaker, or opens it again at once, for longer;
* of one selection at most a share is left out, those who were ejected first; at least one, and never all.

No kept library fits: `pybreaker`, `aiobreaker`, `circuitbreaker` and `purgatory` each guard one function and raise
when it is called while open. Here the question is asked before the call, of many at once, in less than a microsecond;
and none of them knows a cap on the share, a time that grows, or a trial of exactly one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from adsum.events.description import Endpoint
from adsum.events.numbers import check_number
from adsum.events.signals import Instance

__all__ = ["Calls", "Outliers"]

FAILED_TAKES = 1.0
"""Seconds that a failed call counts as at least: a peer that refuses at once is not a fast one."""

log = logging.getLogger("adsum.outliers")


class Calls:
    """What this process has seen of one endpoint during one life of its instance. Only Outliers changes it."""

    __slots__ = (
        "__weakref__",
        "ejected_at",
        "ejections",
        "failures",
        "healed_at",
        "latency",
        "measured_at",
        "name",
        "open",
        "outstanding",
        "trial",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.outstanding = 0
        self.latency, self.measured_at = 0.0, -math.inf
        """Peak EWMA in seconds at `measured_at`; 0 before the first call ended."""
        self.failures = 0
        self.open = False
        """Ejected, or half open."""
        self.ejections, self.ejected_at, self.healed_at = 0, -math.inf, -math.inf
        self.trial = 0
        """The number of the trial that is under way, or was the last."""


class _HasCalls(Protocol):
    @property
    def calls(self) -> Calls: ...


T = TypeVar("T", bound=_HasCalls)


class Outliers:
    """One for all selections of a process. `changes` grows whenever somebody is left out or comes back, and `due` is
    when that happens next by itself (inf: never), so that a selection sees in no time that nothing did.

    `failures`: in a row until it is ejected. `first`, `longest`: seconds of the first ejection, which is added each
    time, and the bound. `forget`: seconds of health for which one ejection is forgotten. `share`: of a selection that
    may be left out. `decay`: seconds, see Calls.latency. Of `clock` only differences count.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        first: float = 30.0,
        longest: float = 300.0,
        forget: float = 10.0,
        share: float = 0.5,
        decay: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (("failures", failures), ("first", first), ("forget", forget), ("decay", decay)):
            check_number(name, value, "must be above 0", lambda number: number > 0)
        check_number("longest", longest, f"must be at least the first ejection's {first:g} s", lambda s: s >= first)
        check_number("share", share, "must be from 0 (nobody is left out) to 1", lambda part: 0 <= part <= 1)
        self._failures, self._first, self._longest, self._forget = failures, first, longest, forget
        self._share = share
        self.decay, self.clock = decay, clock
        self.changes, self.due = 0, math.inf
        self._out: dict[Calls, float] = {}  # ejected, or on trial: until when at most
        self._known: WeakValueDictionary[tuple[object, ...], Calls] = WeakValueDictionary()

    def calls(self, instance: Instance, endpoint: Endpoint) -> Calls:
        """The one record of an endpoint; another life of the instance begins with a new one."""
        key = (*instance.key, instance.term, endpoint)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Calls(f"{instance.key} at {endpoint.address}")
        return found

    # ---- asked by selections

    def look(self) -> None:
        """Let those whose time is over be called again."""
        now = self.clock()
        over = [calls for calls, until in self._out.items() if until <= now]
        for calls in over:
            del self._out[calls]
        if over:
            self._changed()

    def left_out(self, candidates: Sequence[T]) -> list[T]:
        """Those who are not to be called: at most the share, at least one if there are any, never all."""
        if not self._out or not self._share:
            return []
        out = [one for one in candidates if one.calls in self._out]
        most = min(max(1, int(self._share * len(candidates))), len(candidates) - 1)
        return out if len(out) <= most else sorted(out, key=lambda one: one.calls.ejected_at)[:most]

    # ---- told by calls

    def begin(self, calls: Calls, now: float) -> int:
        """A call begins. Its number if it is the trial of a half open endpoint, else 0."""
        calls.outstanding += 1
        if not calls.open or self._out.get(calls, now) > now:
            return 0
        calls.trial += 1
        self._out[calls] = now + self._first  # a trial of which nothing more is heard makes room for another one
        self._changed()
        return calls.trial

    def end(self, calls: Calls, began: float, trial: int, good: bool | None) -> None:
        """It ended well, badly, or (None) nobody knows how."""
        calls.outstanding -= 1
        now = self.clock()
        if good is not None:
            self._measure(calls, now, now - began, good)
        if not calls.open:
            if good:
                calls.failures = 0
            elif good is not None:
                calls.failures += 1
                if calls.failures >= self._failures:
                    calls.ejections = max(0, calls.ejections - self._forgotten(calls, now))
                    self._eject(calls, now)
        elif trial and trial == calls.trial:  # what was called before it was ejected tells nothing of today
            self._judge(calls, now, good)

    def _judge(self, calls: Calls, now: float, good: bool | None) -> None:
        if good is None:
            self._out.pop(calls, None)
        elif good:
            self._out.pop(calls, None)
            calls.open, calls.failures, calls.healed_at = False, 0, now
            log.info("%s answers again", calls.name)
        else:
            calls.failures += 1
            self._eject(calls, now)
        calls.trial += 1  # it is over
        self._changed()

    def _eject(self, calls: Calls, now: float) -> None:
        calls.ejections += 1
        seconds = min(self._first * calls.ejections, self._longest)
        calls.open, calls.ejected_at = True, now
        self._out[calls] = now + seconds
        log.warning("%s: ejected for %g s after %d failures in a row", calls.name, seconds, calls.failures)
        self._changed()

    def _forgotten(self, calls: Calls, now: float) -> int:
        return int((now - calls.healed_at) / self._forget) if calls.ejections else 0

    def _changed(self) -> None:
        self.changes += 1
        self.due = min(self._out.values(), default=math.inf)

    def _measure(self, calls: Calls, now: float, seconds: float, good: bool) -> None:
        """Peak EWMA as in Finagle's PeakEwma: a longer one counts at once and whole, a shorter one by and by."""
        if not good:
            calls.latency = max(calls.latency, seconds, FAILED_TAKES)
        elif seconds >= calls.latency:
            calls.latency = seconds
        else:
            kept = math.exp((calls.measured_at - now) / self.decay)
            calls.latency = calls.latency * kept + seconds * (1 - kept)
        calls.measured_at = now
