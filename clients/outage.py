"""Trying again for ever: how long to wait between two tries, and when to say what.

One WARNING when it begins, one ERROR once it has lasted longer than its limit, one INFO when it is over.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator

__all__ = ["Outage", "delays"]


def delays(
    first: float = 0.2, most: float = 5.0, pick: Callable[[float, float], float] = random.uniform
) -> Iterator[float]:
    """Endless waits in seconds: twice as long each time up to `most`, each picked from its upper half.

    >>> import itertools
    >>> list(itertools.islice(delays(1, 4, lambda low, high: high), 4))
    [1, 2, 4, 4]
    """
    wait = first
    while True:
        yield pick(wait / 2, wait)
        wait = min(wait * 2, most)


class Outage:
    """Trouble of one task: `failed` gives the seconds to wait, `over` ends it. Times are the caller's."""

    def __init__(self, log: logging.Logger, doing: str, limit: float) -> None:
        self._log, self._doing, self._limit = log, doing, limit
        self._since: float | None = None
        self._delays = delays()
        self._escalated = False
        self.last_error: Exception | None = None

    def failed(self, error: Exception, now: float) -> float:
        """It failed again at `now`: say so if it is time to, and tell how long to wait."""
        self.last_error = error
        if self._since is None:
            self._since = now
            self._log.warning("%s: %s; trying again for as long as it takes", self._doing, error)
        elif not self._escalated and now - self._since > self._limit:
            self._escalated = True
            self._log.error("%s: failing for more than %g s: %s", self._doing, self._limit, error)
        return next(self._delays)

    def over(self, now: float) -> None:
        """It works; harmless if it always did."""
        if self._since is not None:
            self._log.info("%s: works again after %.1f s", self._doing, now - self._since)
        self._since, self._escalated, self.last_error = None, False, None
        self._delays = delays()
