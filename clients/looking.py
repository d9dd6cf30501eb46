"""What was said last of an instance, and what it means; behind it, where it is a stray or only said once more."""

from __future__ import annotations

from collections.abc import Container

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.errors import Undecodable
from adsum.events.lifecycle import Deregistered, Expired, Registered
from adsum.events.log import Word
from adsum.events.names import Key
from adsum.events.reader import Message, StreamReader
from adsum.events.streams import EVENTS

from .life import Continue, Decision, Life, LookBack, Yield, counts, judge, judge_behind

__all__ = ["understand", "word_of"]


async def understand(
    broker: Broker, key: Key, life: Life, word: Word | None, known: Container[int] = ()
) -> tuple[Word | None, Decision]:
    """What the last word means for a life that has looked, and the word that means it.

    `known`: sequences of words that left it alive. Any other is believed only in the light of all that was said: it
    may be a stray, speak of a life of ours that was over before, or be an old word that is said once more.
    Raises BrokerUnavailable, BrokerRefused, ReaderLost.
    """
    decision = judge(life, word)
    if isinstance(decision, LookBack | Yield):
        return await _look_back(broker, key, life)
    if isinstance(decision, Continue) and decision.after != life.begun and decision.after not in known:
        return await _look_back(broker, key, life)
    return word, decision


async def _look_back(broker: Broker, key: Key, life: Life) -> tuple[Word | None, Decision]:
    """The last word that counts, and what it means."""
    behind, last = _Behind(life), life.since
    async with StreamReader(broker, EVENTS, [subjects.event(key)]) as reader:
        while batch := await reader.to_end():
            for word in map(word_of, batch):
                last = max(last, word.sequence)
                behind.read(word)
    return behind.found, judge_behind(life, behind.found, last)


class _Behind:
    """`found` is the last of all words on a subject that counts for a life, of those since it began.

    As in the fold, a word counts once, and only if it begins a life or speaks of the one that is lived; but an operator
    may remove us whenever.
    """

    def __init__(self, life: Life) -> None:
        self.found: Word | None = None
        self._life = life
        self._said: set[str] = set()
        self._lived: str | None = None  # whose life it is then; None: not known, "": nobody's

    def read(self, word: Word) -> None:
        """The next one."""
        event = word.event
        if event is None or event.id in self._said:
            return
        self._said.add(event.id)
        removed = isinstance(event, Deregistered) and event.by.kind == "operator"
        lived = isinstance(event, Registered) or self._lived in (None, event.term)
        if isinstance(event, Registered):
            self._lived = event.term
        elif lived and isinstance(event, Deregistered | Expired):
            self._lived = ""
        if word.sequence > self._life.since and counts(self._life, event) and (lived or removed):
            self.found = word


def word_of(message: Message) -> Word:
    """A message of the log as a word; its event is None where it cannot be read."""
    try:
        event = decode_event(message.data)
    except Undecodable:
        event = None
    return Word(message.sequence, message.time, event)
