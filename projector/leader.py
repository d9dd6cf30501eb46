"""Leadership: the tick is the lease.

The leader publishes a tick about once a second, each conditional on the one before. A daemon that saw no tick for
five seconds and stands at the end of the log may publish the next; whoever loses the comparison steps down. So it
works on any catalog, and a paused leader loses it: its next tick names a predecessor that is no longer the last.
Until then it says nothing either: four seconds after it sent the last tick that stands it falls silent by itself.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Protocol

from adsum.events import subjects
from adsum.events.broker import Broker, WrongLastSequence
from adsum.events.codec import decode_tick, encode
from adsum.events.errors import BrokerRefused, BrokerUnavailable, Undecodable
from adsum.events.ids import new_id
from adsum.events.outage import BROKER_REMEDY, Outage
from adsum.events.signals import Tick
from adsum.events.streams import BEATS

from .beats import BeatReader, LastTick
from .clock import TICK_INTERVAL

__all__ = ["RESIGNED", "TAKEOVER_AFTER", "Candidate", "Leader", "Lease", "may_take"]

TAKEOVER_AFTER = 5.0
"""Seconds without a tick after which another daemon may publish the next."""
HOLDS_FOR = TAKEOVER_AFTER - TICK_INTERVAL
"""Seconds after a tick was sent for which its leader speaks: no other may have taken over, with some to spare."""
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


def may_take(last: LastTick | None, home: str, quiet_since: float, now: float) -> bool:
    """Whether the daemon of `home` may publish the next tick, all stored ones being read. Pure.

    At once if there never was a tick, if the leader resigned, or if the first tick that was read is from its own home
    and still the last: that is its own from before a restart. (A later one of its home is a copy's, that runs.)
    """
    if last is None or last.tick.leader == RESIGNED:
        return True
    if last.first and last.tick.leader.startswith(f"{home}/"):
        return True
    return now - max(last.read_at, quiet_since) > TAKEOVER_AFTER


class Lease:
    """Whether what only the leader says may be said now; false in a process that stood still and has just woken."""

    def __init__(self) -> None:
        self._sent = -math.inf
        self._renewed = asyncio.Event()

    @property
    def holds(self) -> bool:
        """Whether nobody else can have taken over yet."""
        return time.monotonic() - self._sent < HOLDS_FOR

    async def held(self) -> None:
        """Wait until it holds."""
        while not self.holds:
            self._renewed.clear()
            await self._renewed.wait()

    def renew(self, sent: float) -> None:
        """The tick that was sent at `sent` (monotonic seconds) stands."""
        self._sent = sent
        self._renewed.set()

    def end(self) -> None:
        """It was lost or given back."""
        self._sent = -math.inf


class Leader:
    """Takes, keeps and gives back the lease. `elected` is set while it is held, `lost` while it is not.

    `home` names the daemon over restarts; `me` is this one run of it. Only `run` publishes.
    """

    def __init__(self, broker: Broker, home: str, beats: BeatReader, candidate: Candidate) -> None:
        self.me = f"{home}/{new_id()[-12:]}"
        self._home = home
        self._broker, self._beats, self._candidate = broker, beats, candidate
        self.outage = Outage(log, "the lease", BROKER_REMEDY)
        self._number = 0
        self._sequence = 0
        self._resigning = False
        self.lease = Lease()
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
                    self.outage.over()
                except (BrokerUnavailable, BrokerRefused) as error:
                    self.outage.goes_on(error)
                interval = TICK_INTERVAL if self.elected.is_set() else SEEK_INTERVAL
                await asyncio.sleep(max(0.05, interval - (time.monotonic() - began)))
        finally:
            if self.elected.is_set() or self._resigning:
                await self._give_back()

    def resign(self) -> None:
        """Lead no more, and say so with the next tick, so that another daemon need not wait."""
        self._resigning = self.elected.is_set()
        self._step_down()

    async def _seek(self) -> None:
        if self._resigning:
            await self._give_back()
            return
        beats = self._beats
        if not beats.at_end or not self._candidate.fit():
            return
        if not may_take(beats.last_tick, self._home, beats.quiet_since, time.monotonic()):
            return
        if not await self._candidate.ready():
            return
        last = beats.last_tick
        if not may_take(last, self._home, beats.quiet_since, time.monotonic()):
            return  # somebody else was heard meanwhile
        self._number = last.tick.number if last else 0
        self._sequence = last.sequence if last else 0
        if await self._publish(self.me):
            log.info("leading from tick %d on", self._number)
            self.lost.clear()
            self.elected.set()

    async def _renew(self) -> None:
        if not self._candidate.fit():
            log.error("stepping down: the catalog does not take what the log says")
            self._step_down()
            await self._give_back()
        elif not await self._publish(self.me):
            if self.elected.is_set():
                log.warning("stepping down: another daemon published the tick after %d", self._number)
            self._step_down()

    def _step_down(self) -> None:
        self.lease.end()
        self.elected.clear()
        self.lost.set()

    async def _give_back(self) -> None:
        """Say that the lease is free. Best effort: whoever does not hear it waits for five seconds."""
        self._resigning = False
        self._step_down()
        try:
            await self._publish(RESIGNED)
        except (BrokerUnavailable, BrokerRefused) as error:
            log.info("could not give the lease back: %s", error)

    async def _publish(self, leader: str) -> bool:
        """Publish the next tick; whether it stands. Raises BrokerUnavailable if that cannot be known now."""
        tick = self._candidate.report(Tick(leader=leader, number=self._number + 1))
        for _ in range(2):
            sent = time.monotonic()
            headers = {"Nats-Expected-Last-Subject-Sequence": str(self._sequence)}
            try:
                stored = await self._broker.store(BEATS, subjects.TICK, encode(tick), headers, 2 * TICK_INTERVAL)
            except WrongLastSequence:
                if not await self._may_try_again():
                    return False
                if self._number == tick.number:  # it was stored after all, who knows when: the next one renews
                    return True
                continue
            self._number, self._sequence = tick.number, stored
            if leader != RESIGNED:
                self.lease.renew(sent)
            return True
        return False

    async def _may_try_again(self) -> bool:
        """After a refusal: take up the last tick there is, unless another daemon published it.

        A broker that comes back from a crash may have set its sequences back, and what cannot be read is nobody's:
        then the next tick may still stand.
        """
        raw = await self._broker.last_message(BEATS, subjects.TICK)
        if raw is None:
            self._sequence = 0
            return True
        try:
            found = decode_tick(raw.data or b"")
        except Undecodable:
            self._sequence = raw.seq or 0
            return True
        if found.leader != self.me or found.number not in (self._number, self._number + 1):
            return False
        self._number, self._sequence = found.number, raw.seq or 0
        return True
