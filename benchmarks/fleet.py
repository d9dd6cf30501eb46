"""Many simulated instances over one connection: registers them, then beats for all of them at a steady rate."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.description import Endpoint, describe
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Registered
from adsum.events.names import Key
from adsum.events.signals import Heartbeat
from adsum.events.streams import EVENTS

__all__ = ["Fleet"]

TOGETHER = 500
SLICES = 50
"""A second of heartbeats goes out in so many bursts."""


class Fleet:
    """`size` instances of `service`, each with one endpoint; `keys` and `terms` by position."""

    def __init__(
        self, broker: Broker, size: int, service: str = "fleet", heartbeat: float = 5, ttl: float = 15
    ) -> None:
        self._broker = broker
        self.keys: Sequence[Key] = [Key("default", service, f"i{n}") for n in range(size)]
        self.terms = [new_id() for _ in self.keys]
        self.counter = 0
        self.dead: set[int] = set()
        """Positions that do not beat any more."""
        self.beat_at: list[float] = [0.0] * size
        """When each beat last (monotonic seconds)."""
        self._heartbeat, self._ttl = heartbeat, ttl

    async def register(self) -> float:
        """Register all, so many together as are acknowledged; the seconds it took."""
        began = time.perf_counter()
        for first in range(0, len(self.keys), TOGETHER):
            acknowledged = [await self._say(n) for n in range(first, min(first + TOGETHER, len(self.keys)))]
            await asyncio.gather(*acknowledged)
        return time.perf_counter() - began

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

    async def _say(self, n: int) -> asyncio.Future[int]:
        term = self.terms[n]
        instance = describe([Endpoint(host="10.0.0.1", port=1 + n % 65535)], heartbeat=self._heartbeat, ttl=self._ttl)
        event = Registered(id=term, term=term, by=Author("owner"), instance=instance)
        headers = {"Nats-Msg-Id": term, "Nats-Expected-Last-Subject-Sequence": "0"}
        return await self._broker.store_later(EVENTS, subjects.event(self.keys[n]), encode(event), headers)
