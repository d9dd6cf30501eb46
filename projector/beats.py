"""Reading heartbeats and ticks: the one place where the observed clock advances.

Both come by one stream and one reader, so a reader that lags behind the heartbeats lags behind the ticks too, and
its clock with it. The stream keeps only the last message of each subject, and its sequences may go backwards after
a crash: nothing here stores or compares them, a lost reader simply begins again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_heartbeat, decode_tick
from adsum.events.errors import Undecodable
from adsum.events.following import StartAgain, follow
from adsum.events.outage import BROKER_REMEDY, Outage
from adsum.events.reader import Message
from adsum.events.signals import Tick
from adsum.events.streams import BEATS

from .clock import ObservedClock
from .hearing import Hearing

__all__ = ["BeatReader", "LastTick"]

SWEEP_TICKS = 30
TERM_LENGTH = 36

log = logging.getLogger("adsum.beats")


class LastTick:
    """The newest tick that was read: what it says, its sequence in the stream, and when (monotonic seconds).

    `first`: no other one was read before it, so it may be older than this process.
    """

    def __init__(self, tick: Tick, sequence: int, read_at: float, first: bool) -> None:
        self.tick, self.sequence, self.read_at, self.first = tick, sequence, read_at, first


class BeatReader:
    """Follows heartbeats and ticks. `at_end` tells whether all that was stored has been read."""

    def __init__(self, broker: Broker, on_tick: Callable[[], None]) -> None:
        self._broker, self._on_tick = broker, on_tick
        self.outage = Outage(log, "reading the heartbeats", BROKER_REMEDY)
        self._ticks = 0
        self.clock = ObservedClock()
        self.hearing = Hearing()
        self.last_tick: LastTick | None = None
        self.at_end = False
        self.quiet_since = time.monotonic()
        self._again = False

    def resume(self, clock: float, hearing: Hearing) -> None:
        """Go on from what was written down: another clock, other heard values, and all heartbeats read anew."""
        self.clock = ObservedClock(clock, self.last_tick.read_at if self.last_tick is not None else None)
        self.hearing = hearing
        self._again = True

    async def run(self) -> None:
        """Follow the stream until cancelled."""
        await follow(self._broker, BEATS, self._read, outage=self.outage, before=self._begin_anew)

    async def _begin_anew(self) -> int:
        self.at_end = self._again = False
        self.quiet_since = time.monotonic()
        return 1

    async def _read(self, messages: Sequence[Message]) -> None:
        if self._again:
            self.at_end = False
            raise StartAgain
        if not messages:
            self.at_end = True
        now = time.monotonic()
        for message in messages:
            try:
                self._take(message, now)
            except Undecodable as error:
                log.debug("ignored %s: %s", message.subject, error)

    def _take(self, message: Message, now: float) -> None:
        if message.subject == subjects.TICK:
            self._take_tick(decode_tick(message.data), message.sequence, now)
            return
        term = subjects.beat_term(message.subject)
        if len(term) == TERM_LENGTH:  # what has another length is no UUID and can be nobody's term
            self.hearing.hear(term, decode_heartbeat(message.data).counter, self.clock.at(now))

    def _take_tick(self, tick: Tick, sequence: int, now: float) -> None:
        last = self.last_tick
        if last is not None and (tick.leader, tick.number) == (last.tick.leader, last.tick.number):
            last.sequence = sequence  # read once more by a new reader: it is no news and adds no time
            return
        self.last_tick = LastTick(tick, sequence, now, first=last is None)
        self.clock.tick(now)
        self._ticks += 1
        if self._ticks % SWEEP_TICKS == 0:
            self.hearing.forget_unknown(self.clock.value)
        self._on_tick()
