"""A log in which everything happens: whole lives, several namespaces, what nobody reads, what no database takes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered
from adsum.events.reader import Message
from adsum.events.streams import EVENTS
from tests.catalog.story import Story, key
from tests.faults.unreadable import bad_events
from tests.making import OWNER

__all__ = ["say", "say_all", "something"]

TTL = {"heartbeat": 200.0, "ttl": 600.0}


async def say(broker: Broker, messages: Sequence[Message]) -> None:
    """Store these in the log, in this order."""
    for first in range(0, len(messages), 500):
        part = messages[first : first + 500]
        await asyncio.gather(*[await broker.store_later(EVENTS, one.subject, one.data, {}) for one in part])


def something(story: Story, dice: random.Random, count: int, living: int = 12) -> list[Message]:
    """Words about few instances; some of them are there at the end."""
    told: list[Message] = []
    for _ in range(count):
        who = key(dice.randrange(living), dice.choice(["orders", "billing"]), dice.choice(["default", "staging"]))
        if who not in story.terms or dice.random() < 0.2:
            told.append(story.register(who, version=f"v{dice.random()}", weight=dice.random() * 9, **TTL))
            continue
        word = dice.choice([story.update, story.health, story.lapse, story.resume, story.expire, story.leave])
        told.append(story.update(who, **TTL) if word == story.update else word(who))
    return told


async def say_all(broker: Broker, count: int = 300, seed: int = 1) -> None:
    """Something, and between it all that is no event, what was said before, and what no database takes."""
    dice, story = random.Random(seed), Story()
    told = something(story, dice, count)
    long = Deregistered(id="x".zfill(201), term=new_id(), by=OWNER)
    odd = [Message(subject, data, 0, 0.0) for subject, data in bad_events() if len(data) < 100_000]
    odd += [Message(subjects.event(key()), encode(long), 0, 0.0), *dice.sample(told[: count // 3], 3)]
    for at, message in zip(sorted(dice.sample(range(count // 2, count), len(odd))), odd, strict=True):
        told.insert(at, message)
    await say(broker, [*told, story.register(key(99), **TTL), *something(story, dice, 20)])
