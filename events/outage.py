"""Telling of trouble once when it begins, louder once it has lasted, and when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from .signals import Trouble

__all__ = ["ALARM_AFTER", "BROKER_REMEDY", "Outage"]

ALARM_AFTER = 15.0
"""Seconds: the default TTL, after which trouble may cost somebody's life."""
BROKER_REMEDY = "look at the broker: its log, its disk, its cluster; all goes on by itself once it answers"
_MOST = 300


class Outage:
    """What something that is tried again and again says of its failures.

    WARNING at the first, ERROR once it has lasted `alarm_after` seconds (and again each time that passes), INFO when
    it is over. `remedy` is the sentence that says what an operator does about it. `lasted` is in seconds, 0 while all
    is well. `alarm_after` may be changed at any time.
    """

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        remedy: str,
        alarm_after: float = ALARM_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._what, self._remedy = log, what, remedy
        self.alarm_after, self._clock = alarm_after, clock
        self._since: float | None = None
        self._alarmed = 0.0
        self.reason = ""

    @property
    def lasted(self) -> float:
        """For how long it has been failing."""
        return 0.0 if self._since is None else self._clock() - self._since

    @property
    def trouble(self) -> Trouble | None:
        """What is to be told of it now; None while all is well."""
        if self._since is None:
            return None
        return Trouble(what=self._what, reason=self.reason[:_MOST], lasted=round(self.lasted, 1), remedy=self._remedy)

    def goes_on(self, reason: object, already: float = 0.0) -> None:
        """It failed once more. `already`: seconds for which it had failed when that was noticed first."""
        self.reason = str(reason)
        if self._since is None:
            self._since = self._alarmed = self._clock() - already
            self._log.warning("%s: %s; trying again. If it lasts: %s", self._what, reason, self._remedy)
        elif self._clock() - self._alarmed >= self.alarm_after:
            self._alarmed = self._clock()
            self._log.error("%s: failing for %.0f s now: %s; %s", self._what, self.lasted, reason, self._remedy)

    def over(self) -> None:
        """It works (again)."""
        if self._since is not None:
            self._log.info("%s: works again after %.1f s", self._what, self.lasted)
        self._since, self.reason = None, ""
