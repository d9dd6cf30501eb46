"""Many simulated instances over one connection: registers them, then beats for all of them at a steady rate."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Registered
from adsum.events.names import Key
from adsum.events.signals import Heartbeat
from adsum.events.streams import BEATS, EVENTS

from .making import SERVICE, described, key_of

__all__ = ["Fleet"]

TOGETHER = 500
BEATS_TOGETHER = 2000
SLICES = 50
"""A second of heartbeats goes out in so many bursts."""


class Fleet:
    """`size` instances of `service`, as `making` describes them; `keys` and `terms` by number."""

    def __init__(
        self, broker: Broker, size: int = 0, service: str = SERVICE, heartbeat: float = 5, ttl: float = 15
    ) -> None:
        self._broker, self._service = broker, service
        self.heartbeat, self.ttl = heartbeat, ttl
        self.keys: list[Key] = []
        self.terms: list[str] = []
        self.counter = 0
        self.dead: set[int] = set()
        """Numbers that do not beat any more."""
        self.beat_at: list[float] = []
        """When each beat last (monotonic seconds)."""
        self.grow(size)

    def grow(self, size: int) -> None:
        """Let there be so many, none of the new ones registered."""
        for n in range(len(self.keys), size):
            self.keys.append(key_of(n, self._service))
            self.terms.append(new_id())
            self.beat_at.append(0.0)

    async def register(self, numbers: Sequence[int] | None = None) -> float:
        """Register all or these, at most TOGETHER of them unacknowledged; the seconds it took."""
        began = time.perf_counter()
        numbers = range(len(self.keys)) if numbers is None else numbers
        acknowledged: deque[asyncio.Future[int]] = deque()
        for n in numbers:
            acknowledged.append(await self._say(n))
            if len(acknowledged) > TOGETHER:
                await acknowledged.popleft()
        await asyncio.gather(*acknowledged)
        return time.perf_counter() - began

    def registered(self, n: int, version: str = "2.14.3") -> Registered:
        """The event that begins the life of one."""
        instance = described(n, self.heartbeat, self.ttl, version)
        return Registered(id=self.terms[n], term=self.terms[n], by=Author("owner"), instance=instance)

    async def beat(self, rounds: int, seconds_a_round: float) -> float:
        """Every instance beats once a round, evenly spread; the seconds by which the sender itself fell behind."""
        beats = [(n, subjects.beat(key, self.terms[n])) for n, key in enumerate(self.keys)]
        slices = max(1, round(SLICES * seconds_a_round))
        start, late = time.monotonic(), 0.0
        for round_number in range(rounds):
            self.counter += 1
            data = encode(Heartbeat(self.counter))
            for part in range(slices):
                due = start + (round_number + part / slices) * seconds_a_round
                late = max(late, time.monotonic() - due)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                now = time.monotonic()
                for n, subject in beats[part::slices]:
                    if n not in self.dead:
                        self.beat_at[n] = now
                        await self._broker.publish(subject, data)
        await self._broker.flush()
        return late

    async def beat_once(self, numbers: Sequence[int]) -> None:
        """One heartbeat of each of these; returns once the broker has stored them.

        Heartbeats are not acknowledged, and a broker whose queue is full drops them. So whoever sends as fast as it
        can has one of every BEATS_TOGETHER acknowledged: the broker stores them in their order.
        """
        self.counter += 1
        data = encode(Heartbeat(self.counter))
        for first in range(0, len(numbers), BEATS_TOGETHER):
            *others, last = numbers[first : first + BEATS_TOGETHER]
            for n in others:
                await self._broker.publish(subjects.beat(self.keys[n], self.terms[n]), data)
            await (await self._broker.store_later(BEATS, subjects.beat(self.keys[last], self.terms[last]), data, {}))

    async def _say(self, n: int) -> asyncio.Future[int]:
        headers = {"Nats-Msg-Id": self.terms[n], "Nats-Expected-Last-Subject-Sequence": "0"}
        return await self._broker.store_later(EVENTS, subjects.event(self.keys[n]), encode(self.registered(n)), headers)
