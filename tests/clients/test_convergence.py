"""Whatever others say of an instance, in whatever order: in the end the projector's own fold of the log shows what its
owner wants, or the owner knows that its life was ended by others. Random histories against the real broker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from adsum.clients import Key, Registration, Registry, Removed, Superseded
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.ids import new_id
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Event,
    Expired,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Resumed,
    Silence,
)
from adsum.events.log import Outrun, last_word, say
from adsum.events.reader import StreamReader
from adsum.events.streams import EVENTS
from adsum.projector.fold import Entry, fold, read_entry
from adsum.projector.record import Record
from tests.waiting import until

from .announcer import Announcer

KEY = Key("default", "orders", "one")
REAPER, OPERATOR, STRANGER = Author("reaper"), Author("operator", "ann"), Author("owner", "stranger")
GHOST = Author("owner", "a process of the past")
SILENCE = Silence(counter=1, silent=3.0, ttl=1.0)


async def catalog(broker: Broker) -> Record | None:
    """What the projector makes of the log."""
    record: Record | None = None
    async with StreamReader(broker, EVENTS, [subjects.event(KEY)]) as reader:
        while batch := await reader.to_end():
            for message in batch:
                entry = read_entry(message)
                assert isinstance(entry, Entry)
                record = fold(record, KEY, entry.event, message.sequence, message.time)
    return record


class Others:
    """The reaper, an operator and other processes, who know of the log what it says, and speak out of turn."""

    def __init__(self, broker: Broker, me: Registration, chance: random.Random) -> None:
        self.broker, self.me, self.chance = broker, me, chance
        self.rival = False

    async def speak(self, kinds: tuple[str, ...]) -> None:
        word = await last_word(self.broker, KEY)
        record = await catalog(self.broker)
        if word is None:
            return
        event = self._event(self.chance.choice(kinds), record)
        if event is None:
            return
        await asyncio.sleep(self.chance.choice((0, 0.001, 0.01)))  # another order each time
        try:
            await say(self.broker, KEY, event, word.sequence)
        except Outrun:
            return
        self.rival = self.rival or event.by == STRANGER

    def _event(self, kind: str, record: Record | None) -> Event | None:
        if kind == "rival" and record is not None:
            term = new_id()
            return Registered(id=term, term=term, by=STRANGER, instance=record.description)
        if kind == "stray":
            return Deregistered(id=new_id(), term=new_id(), by=GHOST)
        if record is None:
            return None
        about = {"id": new_id(), "term": record.term}
        match kind:
            case "lapsed":
                return Lapsed(**about, by=REAPER, evidence=SILENCE)
            case "resumed":
                return Resumed(**about, by=REAPER, evidence=SILENCE)
            case "expired":
                return Expired(**about, by=REAPER, evidence=SILENCE)
            case "drained":
                return ModeChanged(**about, by=OPERATOR, mode="draining", reason="ann")
            case "sick":
                return HealthChanged(**about, by=OPERATOR, health="critical", reason="ann")
            case _:
                return Deregistered(**about, by=OPERATOR)


async def live(me: Registration, others: Others, chance: random.Random, kinds: tuple[str, ...]) -> None:
    """Twenty things happen, some at the same time."""
    ours: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: me.update(weight=chance.random()),
        lambda: me.health("warning"),
        me.serve,
        lambda: asyncio.sleep(0.01),  # a pause among other things that happen
    )
    for _ in range(20):
        results = await asyncio.gather(chance.choice(ours)(), others.speak(kinds), return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, Superseded | Removed):
                raise result


async def told(announcer: Announcer) -> None:
    """The projector tells where things stand."""
    record = await catalog(announcer.broker)
    word = await last_word(announcer.broker, KEY)
    assert word is not None
    if record is None:
        await announcer.end("orders", "one", word.sequence)
    else:
        standing = {"health": record.health, "mode": record.mode, "reason": record.reason}
        await announcer.put("orders", "one", record.revision, term=record.term, **standing)


@pytest.mark.parametrize("seed", range(8))
async def test_the_catalog_ends_up_showing_what_the_owner_wants(
    registry: Registry, announcer: Announcer, seed: int
) -> None:
    chance = random.Random(seed)
    kinds = ("lapsed", "resumed", "expired", "drained", "sick", "stray")
    async with registry.register("orders", port=80, id="one") as me:
        await live(me, Others(announcer.broker, me, chance), chance, kinds)
        await told(announcer)

        async def agreed() -> tuple[object, ...]:
            record = await catalog(announcer.broker)
            if record is None:
                return None, me.standing
            return (record.term, record.description, record.health, record.mode), me.standing

        def same(seen: tuple[object, ...]) -> bool:
            will = me.standing
            return seen[0] == (me.term, will.description, will.health, will.mode)

        await until(agreed, same)
        assert me.state == "registered"


@pytest.mark.parametrize("seed", range(8))
async def test_who_was_ended_by_others_knows_it_and_leaves_the_successor_alone(
    registry: Registry, announcer: Announcer, seed: int
) -> None:
    chance = random.Random(seed)
    kinds = ("lapsed", "expired", "drained", "stray", "removed" if seed % 2 else "rival")
    async with registry.register("orders", port=80, id="one") as me:
        others = Others(announcer.broker, me, chance)
        await live(me, others, chance, kinds)
        await told(announcer)
        if others.rival:
            assert isinstance(await asyncio.wait_for(me.ended(), 5), Superseded)
        before = await last_word(announcer.broker, KEY)
    after = await last_word(announcer.broker, KEY)
    if me.state in ("superseded", "removed"):
        assert before == after
