"""Saying "still here" for as long as lives last, whatever else waits for the broker: one task for all of a block."""

from __future__ import annotations

import asyncio
import heapq
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

__all__ = ["Beat", "Beats"]

TOGETHER = 0.02
"""Seconds by which a beat may come early, so that those of many go out together."""
IN_A_ROW = 200

log = logging.getLogger("adsum.registration")


class Beat:
    """The heartbeat of one instance. `term()` is the life to keep up, "" while there is none; `interval()` seconds."""

    __slots__ = ("_beating", "_counter", "due", "interval", "key", "term")

    def __init__(self, key: Key, term: Callable[[], str], interval: Callable[[], float]) -> None:
        self.key, self.term, self.interval = key, term, interval
        self.due = math.inf
        """When the next one is due, on the loop's clock; set by Beats."""
        self._beating, self._counter = "", 0

    async def send(self, broker: Broker) -> None:
        """Beat, if there is a life and a connection: nothing is kept for later."""
        term = self.term()
        if not term or not broker.connected:
            return
        if term != self._beating:
            self._beating, self._counter = term, 0
        self._counter += 1
        try:
            await broker.publish(subjects.beat(self.key, term), encode(Heartbeat(self._counter)))
        except BrokerUnavailable as error:
            log.debug("%s: no heartbeat: %s", self.key, error)


class Beats:
    """A heartbeat at once when a term begins and after each reconnect, then one every interval.

    After a pause of the whole process one beat follows, not all that were missed.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queue: list[tuple[float, int, Beat]] = []
        self._added = 0
        self._sooner = asyncio.Event()

    def wake(self, beat: Beat) -> None:
        """Beat now: it is new, a term began, the connection stands again, or the interval became shorter."""
        self._put(beat, -math.inf)
        self._sooner.set()

    def end(self, beat: Beat) -> None:
        """No more of it."""
        beat.due = math.inf

    async def run(self) -> None:
        """Until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            self._sooner.clear()
            sent = 0
            while self._queue and self._queue[0][0] <= clock() + TOGETHER:
                due, _, beat = heapq.heappop(self._queue)
                if due != beat.due:
                    continue  # it was woken, or ended
                await beat.send(self._broker)
                if due == beat.due:
                    self._put(beat, _next(due, beat.interval(), clock()))
                sent += 1
                if sent % IN_A_ROW == 0:
                    await asyncio.sleep(0)
            try:
                async with asyncio.timeout_at(self._queue[0][0] if self._queue else None):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    def _put(self, beat: Beat, due: float) -> None:
        beat.due = due
        self._added += 1
        heapq.heappush(self._queue, (due, self._added, beat))


def _next(due: float, interval: float, now: float) -> float:
    """When the next beat is due. One that was woken, or late, begins a new rhythm, out of step with the others."""
    return now + interval * random.uniform(0.6, 1) if now - due > interval else due + interval
