"""Reading heartbeats and ticks: the one place where the observed clock advances.

Both come by one stream and one reader, so a reader that lags behind the heartbeats lags behind the ticks too, and
its clock with it. The stream keeps only the last message of each subject, and its sequences may go backwards after
a crash: nothing here stores or compares them, a lost reader simply begins again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from adsum.events import subjects
from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.codec import decode_heartbeat, decode_tick
from adsum.events.errors import BrokerUnavailable, Undecodable
from adsum.events.reader import Message, ReaderLost, StreamReader
from adsum.events.signals import Tick
from adsum.events.streams import BEATS

from .clock import ObservedClock
from .hearing import Hearing

__all__ = ["BeatReader", "LastTick"]

log = logging.getLogger("adsum.beats")


class LastTick:
    """The newest tick that was read: what it says, its sequence in the stream, and when (monotonic seconds)."""

    def __init__(self, tick: Tick, sequence: int, read_at: float) -> None:
        self.tick, self.sequence, self.read_at = tick, sequence, read_at


class BeatReader:
    """Follows heartbeats and ticks. `at_end` tells whether all that was stored has been read."""

    def __init__(self, broker: Broker, on_tick: Callable[[], None]) -> None:
        self._broker, self._on_tick = broker, on_tick
        self.clock = ObservedClock()
        self.hearing = Hearing()
        self.last_tick: LastTick | None = None
        self.at_end = False
        self.quiet_since = time.monotonic()
        self._again = asyncio.Event()

    def resume(self, clock: float, hearing: Hearing) -> None:
        """Go on from what was written down: another clock, other heard values, and all heartbeats read anew."""
        self.clock = ObservedClock(clock)
        self.hearing = hearing
        self._again.set()

    async def run(self) -> None:
        """Follow the stream until cancelled."""
        delays = backoff()
        while True:
            try:
                async with StreamReader(self._broker, BEATS) as reader:
                    delays = backoff()
                    self._again.clear()
                    self.quiet_since = time.monotonic()
                    await self._follow(reader)
            except (ReaderLost, BrokerUnavailable) as error:
                log.info("reading the heartbeats again: %s", error)
                await asyncio.sleep(next(delays))
            finally:
                self.at_end = False

    async def _follow(self, reader: StreamReader) -> None:
        while not self._again.is_set():
            messages = await reader.to_end()
            if not messages:
                self.at_end = True
                messages = await reader.batch()
            now = time.monotonic()
            for message in messages:
                try:
                    self._take(message, now)
                except (Undecodable, ValueError) as error:
                    log.debug("ignored %s: %s", message.subject, error)

    def _take(self, message: Message, now: float) -> None:
        if message.subject != subjects.TICK:
            counter = decode_heartbeat(message.data).counter
            self.hearing.hear(subjects.beat_term(message.subject), counter, self.clock.at(now))
            return
        tick = decode_tick(message.data)
        last = self.last_tick
        if last is not None and (tick.leader, tick.number) == (last.tick.leader, last.tick.number):
            last.sequence = message.sequence  # read once more by a new reader: it is no news and adds no time
            return
        self.last_tick = LastTick(tick, message.sequence, now)
        self.clock.tick(now)
        self._on_tick()
