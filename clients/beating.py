"""Saying "still here" for as long as a life lasts, whatever else waits for the broker."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.errors import BrokerUnavailable
from adsum.events.names import Key
from adsum.events.signals import Heartbeat

__all__ = ["Beats"]

log = logging.getLogger("adsum.registration")


class Beats:
    """A heartbeat at once when a term begins and after each reconnect, then one every `interval()` seconds.

    `term()` is the life to keep up, "" while there is none. Nothing is kept for later: a beat that cannot be sent
    is not sent. After a pause of the whole process one beat follows, not all that were missed.
    """

    def __init__(self, broker: Broker, key: Key, term: Callable[[], str], interval: Callable[[], float]) -> None:
        self._broker, self._key, self._term, self._interval = broker, key, term, interval
        self._wake = asyncio.Event()
        self._beating, self._counter = "", 0

    def wake(self) -> None:
        """Beat now: a term began, the connection stands again, or the interval became shorter."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        due = -math.inf
        clock = asyncio.get_running_loop().time
        while True:
            self._wake.clear()
            await self._beat()
            interval = self._interval()
            if clock() - due > interval:  # woken, or late: begin a new rhythm, out of step with the others
                due = clock() + interval * random.uniform(0.6, 1)
            else:
                due += interval
            try:
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            except TimeoutError:
                continue
            due = -math.inf

    async def _beat(self) -> None:
        term = self._term()
        if not term or not self._broker.connected:
            return
        if term != self._beating:
            self._beating, self._counter = term, 0
        self._counter += 1
        try:
            await self._broker.publish(subjects.beat(self._key, term), encode(Heartbeat(self._counter)))
        except BrokerUnavailable as error:
            log.debug("%s: no heartbeat: %s", self._key, error)
