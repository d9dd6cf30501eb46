"""Who spoke last of the health of a life: an owner, an operator or a prober. Only the log tells."""

from __future__ import annotations

from typing import NamedTuple

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.errors import Undecodable
from adsum.events.lifecycle import HealthChanged, Registered
from adsum.events.names import Key
from adsum.events.reader import StreamReader
from adsum.events.streams import EVENTS

__all__ = ["PROBER", "HealthWord", "last_health_word"]

PROBER = "prober"
"""The kind of author that a prober is."""


class HealthWord(NamedTuple):
    """The last word on the health of a life, None if the log holds none any more; `last`: of the last word at all."""

    word: Registered | HealthChanged | None
    last: int

    @property
    def by(self) -> str:
        """The kind of its author."""
        return self.word.by.kind if self.word is not None else ""

    @property
    def condemned(self) -> HealthChanged | None:
        """The word of a prober that made it critical, if that is what stands."""
        word = self.word
        stands = isinstance(word, HealthChanged) and word.by.kind == PROBER and word.health == "critical"
        return word if stands and isinstance(word, HealthChanged) else None


async def last_health_word(broker: Broker, key: Key, term: str) -> HealthWord:
    """What the log says of the health of a life. Raises BrokerUnavailable, BrokerRefused, ReaderLost."""
    found, last, counted = None, 0, set[str]()
    async with StreamReader(broker, EVENTS, [subjects.event(key)]) as reader:
        while batch := await reader.to_end():
            for message in batch:
                last = message.sequence
                try:
                    event = decode_event(message.data)
                except Undecodable:
                    continue
                if event.term == term and event.id not in counted and isinstance(event, Registered | HealthChanged):
                    found = event
                counted.add(event.id)
    return HealthWord(found, last)
