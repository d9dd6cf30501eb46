"""Telling of trouble once when it begins, louder once it has lasted, and when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["Outage"]

ALARM_AFTER = 15.0
"""Seconds: the default TTL, after which trouble may cost somebody's life."""


class Outage:
    """What something that is tried again and again says of its failures.

    WARNING at the first, ERROR once it has lasted `alarm_after` seconds (and again each time that passes), INFO when
    it is over. `lasted` is in seconds, 0 while all is well.
    """

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        alarm_after: float = ALARM_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._what, self._alarm_after, self._clock = log, what, alarm_after, clock
        self._since: float | None = None
        self._alarmed = 0.0
        self.reason = ""

    @property
    def lasted(self) -> float:
        """For how long it has been failing."""
        return 0.0 if self._since is None else self._clock() - self._since

    def goes_on(self, reason: object) -> None:
        """It failed once more."""
        self.reason = str(reason)
        if self._since is None:
            self._since = self._alarmed = self._clock()
            self._log.warning("%s: %s; trying again", self._what, reason)
        elif self._clock() - self._alarmed >= self._alarm_after:
            self._alarmed = self._clock()
            self._log.error("%s: failing for %.0f s now: %s", self._what, self.lasted, reason)

    def over(self) -> None:
        """It works (again)."""
        if self._since is not None:
            self._log.info("%s: works again after %.1f s", self._what, self.lasted)
        self._since, self.reason = None, ""
