"""Saying that a peer could not be reached: a hint to adsumd, which looks for itself before it says anything."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.errors import BrokerUnavailable, InvalidValue
from adsum.events.names import Key
from adsum.events.numbers import check_number
from adsum.events.signals import Instance, Report

__all__ = ["REPORT_EVERY", "Reporting"]

REPORT_EVERY = 5.0
"""Seconds between two reports of one process about one endpoint of one life."""
_LONGEST = 300
_MOST = 1024

log = logging.getLogger("adsum.reporting")


class Reporting:
    """Reports of one process. They are sent and forgotten: a call must not wait for them, nor fail with them."""

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker, self._clock = broker, clock
        self._sent: dict[tuple[Key, str, str], float] = {}

    async def report(self, instance: Instance, endpoint: str, reason: str, ago: float) -> bool:
        """See `Registry.report`."""
        name = endpoint or instance.endpoint.name
        if name not in [one.name for one in instance.endpoints]:
            raise InvalidValue("endpoint", name, f"{instance.key} has none of this name")
        check_number("ago", ago, "must be a number of seconds", math.isfinite)
        about = instance.key, instance.term, name
        if not self._broker.connected or not self._may(about):
            return False
        told = reason[:_LONGEST].encode(errors="replace").decode()  # whatever an exception says
        report = Report(by=self._broker.name, term=instance.term, endpoint=name, reason=told, ago=max(ago, 0.0))
        try:
            await self._broker.publish(subjects.report(instance.key), encode(report))
        except BrokerUnavailable as error:
            log.debug("%s: not reported: %s", instance.key, error)
            return False
        return True

    def _may(self, about: tuple[Key, str, str]) -> bool:
        """Whether it is time to report this one (again); then it counts as reported."""
        now = self._clock()
        if now - self._sent.get(about, float("-inf")) < REPORT_EVERY:
            return False
        if len(self._sent) >= _MOST:
            self._sent = {one: sent for one, sent in self._sent.items() if now - sent < REPORT_EVERY}
        if len(self._sent) >= _MOST:
            return False
        self._sent[about] = now
        return True
