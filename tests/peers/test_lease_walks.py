"""Random walks over one instance id: a lease is renewed exactly as long as the fold of the log has its life."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from adsum.clients import Expired, Lease, Leases
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.errors import Undecodable
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, Event, HealthChanged, Lapsed, ModeChanged, Registered, Silence
from adsum.events.lifecycle import Expired as ExpiredEvent
from adsum.events.names import Key
from adsum.events.reader import StreamReader
from adsum.events.streams import EVENTS
from adsum.projector.fold import fold
from adsum.projector.record import Record
from tests.making import OPERATOR, OWNER, REAPER, description, key

from .leasing import HERE, leases, registry, say_next

__all__ = ["leases", "registry"]

WALKS, STEPS = 12, 30
SILENCE = Silence(counter=1, silent=40.0, ttl=15.0)


class Walk:
    """One id, the leases that were given for it, and all that anybody said."""

    def __init__(self, leases: Leases, broker: Broker, of: Key, chance: random.Random) -> None:
        self.leases, self.broker, self.key, self.chance = leases, broker, of, chance
        self.given: list[Lease] = []
        self.said: list[str] = []

    async def record(self) -> Record | None:
        """What the fold makes of the log: an event that was folded before changes nothing."""
        record: Record | None = None
        folded: set[str] = set()
        async with StreamReader(self.broker, EVENTS, [subjects.event(self.key)]) as reader:
            while messages := await reader.to_end():
                for message in messages:
                    with suppress(Undecodable):
                        event = decode_event(message.data)
                        if event.id not in folded:
                            folded.add(event.id)
                            record = fold(record, self.key, event, message.sequence, message.time)
        return record

    def term(self) -> str:
        """The life of a lease, or one that nobody knows."""
        return self.chance.choice([lease.term for lease in self.given] + [new_id()])

    def foreign(self) -> Event:
        """Somebody says something of some life."""
        told = {"id": new_id(), "term": self.term()}
        term = new_id()
        return self.chance.choice(
            [
                Lapsed(**told, by=REAPER, evidence=SILENCE),
                ExpiredEvent(**told, by=REAPER, evidence=SILENCE),
                Deregistered(**told, by=OPERATOR),
                Deregistered(**told, by=OWNER),
                ModeChanged(**told, by=OPERATOR, mode="draining"),
                HealthChanged(**told, by=OPERATOR, health="critical"),
                Registered(id=term, term=term, by=OWNER, instance=description()),
            ]
        )

    async def step(self) -> None:
        """Something happens."""
        what = self.chance.choice(["register", "renew", "deregister", "foreign", "foreign", "again", "garbage"])
        self.said.append(what)
        match what:
            case "register":
                self.given.append(await self.leases.register("orders", HERE, id=self.key.id))
            case "renew" if self.given:
                await self.check(self.chance.choice(self.given))
            case "deregister" if self.given:
                await self.end(self.chance.choice(self.given))
            case "foreign":
                await say_next(self.broker, self.foreign(), self.key)
            case "again" if self.given:
                await self.say_again()
            case "garbage":
                await self.broker.store(EVENTS, subjects.event(self.key), b"{", {})

    async def say_again(self) -> None:
        """An event of before is stored once more, long after the broker has forgotten it."""
        async with StreamReader(self.broker, EVENTS, [subjects.event(self.key)]) as reader:
            messages = await reader.to_end()
        if messages:
            data = self.chance.choice(messages).data
            await self.broker.store(EVENTS, subjects.event(self.key), data, {})

    async def check(self, lease: Lease) -> None:
        """A renewal succeeds exactly if the life is there."""
        record = await self.record()
        there = record is not None and record.term == lease.term
        [error] = await asyncio.gather(self.leases.renew(lease), return_exceptions=True)
        assert error is None or isinstance(error, Expired)
        assert there == (error is None), f"{error} after {self.said}"

    async def end(self, lease: Lease) -> None:
        """A goodbye ends this life and no other."""
        before = await self.record()
        await self.leases.deregister(lease)
        after = await self.record()
        if before is not None and before.term != lease.term:
            assert after is not None, f"ended a successor after {self.said}"
            assert (after.term, after.revision) == (before.term, before.revision)
        else:
            assert after is None, f"not ended after {self.said}"


@pytest.mark.parametrize("walk", range(WALKS))
async def test_a_renewal_agrees_with_the_fold(leases: Leases, broker: Broker, walk: int) -> None:
    """Whatever anybody says of the id, in whatever order, twice or unreadably."""
    one = Walk(leases, broker, key(f"o-{walk}"), random.Random(walk))
    for _ in range(STEPS):
        await one.step()
    one.given.append(await leases.register("orders", HERE, id=one.key.id))
    for lease in one.given:
        await one.check(lease)
