"""The observed clock: time in which somebody could have been heard. Pure; whoever reads a tick passes the time in.

Each tick of the leader that is read adds the time since the one before, on the reader's own monotonic clock, but at
most two intervals. So while the broker, the network or this process stands still, the clock does too, and no
service's clock, no broker's timestamp and no wall clock decides who is alive.
"""

from __future__ import annotations

__all__ = ["TICK_INTERVAL", "ObservedClock"]

TICK_INTERVAL = 1.0
"""Seconds between two ticks."""
_MOST = 2 * TICK_INTERVAL


class ObservedClock:
    """Seconds of observed time. `now` is always the reader's monotonic clock, in seconds.

    `ticked`: when this reader read a tick before, None if it never did.
    """

    def __init__(self, value: float = 0.0, ticked: float | None = None) -> None:
        self.value = value
        self._ticked = ticked

    def tick(self, now: float) -> None:
        """A tick was read."""
        self.value = self.at(now)
        self._ticked = now

    def at(self, now: float) -> float:
        """What the clock would show if a tick were read now; never before the last tick, never far beyond it."""
        if self._ticked is None:
            return self.value
        return self.value + min(max(now - self._ticked, 0.0), _MOST)
