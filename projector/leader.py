"""Leadership: the tick is the lease.

The leader publishes a tick about once a second, each conditional on the one before. A daemon that saw no tick for
five seconds and stands at the end of the log may publish the next; whoever loses the comparison steps down. So it
works on any catalog, and a paused leader loses it: its next tick names a predecessor that is no longer the last.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Protocol

from adsum.events import subjects
from adsum.events.broker import Broker, WrongLastSequence
from adsum.events.codec import decode_tick, encode
from adsum.events.errors import BrokerRefused, BrokerUnavailable, Undecodable
from adsum.events.signals import Tick
from adsum.events.streams import BEATS

from .beats import BeatReader, LastTick
from .clock import TICK_INTERVAL

__all__ = ["RESIGNED", "TAKEOVER_AFTER", "Candidate", "Leader", "may_take"]

TAKEOVER_AFTER = 5.0
"""Seconds without a tick after which another daemon may publish the next."""
SEEK_INTERVAL = 0.25
RESIGNED = ""
"""The leader that a tick names which gives the lease back."""

log = logging.getLogger("adsum.leader")


class Candidate(Protocol):
    """What leadership asks of the daemon it is for."""

    def fit(self) -> bool:
        """Whether its catalog works; an unfit leader gives the lease back."""

    async def ready(self) -> bool:
        """Whether it stands at the end of the log and may begin to lead."""

    def report(self, tick: Tick) -> Tick:
        """The tick with what the daemon knows of itself put in."""


def may_take(last: LastTick | None, me: str, quiet_since: float, now: float) -> bool:
    """Whether `me` may publish the next tick, all stored ones being read. Pure.

    At once if there never was a tick, if the leader resigned, or if the last tick is its own from before a restart.
    """
    if last is None or last.tick.leader in (RESIGNED, me):
        return True
    return now - max(last.read_at, quiet_since) > TAKEOVER_AFTER


class Leader:
    """Takes, keeps and gives back the lease. `elected` is set while it is held; `lost` once it is not."""

    def __init__(self, broker: Broker, me: str, beats: BeatReader, candidate: Candidate) -> None:
        self._broker, self._me, self._beats, self._candidate = broker, me, beats, candidate
        self._number = 0
        self._sequence = 0
        self.elected = asyncio.Event()
        self.lost = asyncio.Event()
        self.lost.set()

    async def run(self) -> None:
        """Seek and keep the lease until cancelled; give it back then."""
        try:
            while True:
                began = time.monotonic()
                try:
                    await (self._renew() if self.elected.is_set() else self._seek())
                except BrokerUnavailable as error:
                    log.debug("no tick: %s", error)
                interval = TICK_INTERVAL if self.elected.is_set() else SEEK_INTERVAL
                await asyncio.sleep(max(0.05, interval - (time.monotonic() - began)))
        finally:
            await self.resign()

    async def _seek(self) -> None:
        beats = self._beats
        if not beats.at_end or not self._candidate.fit():
            return
        if not may_take(beats.last_tick, self._me, beats.quiet_since, time.monotonic()):
            return
        if not await self._candidate.ready():
            return
        last = beats.last_tick
        self._number = last.tick.number if last else 0
        self._sequence = last.sequence if last else 0
        if await self._publish(self._me):
            log.info("leading from tick %d on", self._number)
            self.lost.clear()
            self.elected.set()

    async def _renew(self) -> None:
        if not self._candidate.fit():
            log.error("stepping down: the catalog does not take what the log says")
            await self.resign()
        elif not await self._publish(self._me):
            log.warning("stepping down: another daemon published the tick after %d", self._number)
            self.step_down()

    def step_down(self) -> None:
        """Lead no more, whoever leads now."""
        self.elected.clear()
        self.lost.set()

    async def resign(self) -> None:
        """Lead no more and say so, so that another daemon need not wait."""
        if not self.elected.is_set():
            return
        self.step_down()
        try:
            await self._publish(RESIGNED)
        except (BrokerUnavailable, BrokerRefused) as error:
            log.debug("could not give the lease back: %s", error)

    async def _publish(self, leader: str) -> bool:
        """Publish the next tick; whether it stands. Raises BrokerUnavailable if that cannot be known now."""
        tick = self._candidate.report(Tick(leader=leader, number=self._number + 1))
        for _ in range(2):
            headers = {"Nats-Expected-Last-Subject-Sequence": str(self._sequence)}
            try:
                stored = await self._broker.store(BEATS, subjects.TICK, encode(tick), headers, 2 * TICK_INTERVAL)
            except WrongLastSequence:
                if not await self._still_mine():
                    return False
                if self._number == tick.number:  # it was stored after all
                    return True
                continue
            self._number, self._sequence = tick.number, stored
            return True
        return False

    async def _still_mine(self) -> bool:
        """After a refusal: take up the last tick there is, if it is this daemon's own last one or the one it tried.

        A broker that comes back from a crash may have set its sequences back; then the next tick may still stand.
        """
        raw = await self._broker.last_message(BEATS, subjects.TICK)
        if raw is None:
            self._sequence = 0
            return True
        try:
            found = decode_tick(raw.data or b"")
        except Undecodable:
            return False
        if found.leader != self._me or found.number not in (self._number, self._number + 1):
            return False
        self._number, self._sequence = found.number, raw.seq or 0
        return True
