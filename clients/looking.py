"""What was said last of an instance, and what it means; behind it, where it is a stray or only said once more."""

from __future__ import annotations

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.errors import Undecodable
from adsum.events.log import Word
from adsum.events.names import Key
from adsum.events.reader import Message, StreamReader
from adsum.events.streams import EVENTS

from .life import Decision, Life, LookBack, Yield, counts, judge, judge_behind

__all__ = ["understand", "word_of"]


async def understand(broker: Broker, key: Key, life: Life, word: Word | None) -> tuple[Word | None, Decision]:
    """What the last word means for a life that has looked, and the word that means it.

    Of whoever seems to come later all that was said is read, for it may be an old word that is said once more.
    Raises BrokerUnavailable, BrokerRefused, ReaderLost.
    """
    decision = judge(life, word)
    if isinstance(decision, LookBack | Yield):
        return await _look_back(broker, key, life)
    return word, decision


async def _look_back(broker: Broker, key: Key, life: Life) -> tuple[Word | None, Decision]:
    """The last word that counts, behind strays and behind what is only said once more, and what it means."""
    found: Word | None = None
    last, said = life.since, set[str]()
    async with StreamReader(broker, EVENTS, [subjects.event(key)]) as reader:
        while batch := await reader.to_end():
            for word in map(word_of, batch):
                last = max(last, word.sequence)
                if word.event is None or word.event.id in said:
                    continue
                said.add(word.event.id)
                found = word if word.sequence > life.since and counts(life, word.event) else found
    return found, judge_behind(life, found, last)


def word_of(message: Message) -> Word:
    """A message of the log as a word; its event is None where it cannot be read."""
    try:
        event = decode_event(message.data)
    except Undecodable:
        event = None
    return Word(message.sequence, message.time, event)
