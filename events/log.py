"""Saying something in the log, and looking at what was said last.

Every lifecycle event is conditional on the last event that its author knows of that instance, so each one was said
in the knowledge of the one before, and a publish that arrives late replaces nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from nats.js.api import RawStreamMsg

from . import subjects
from .broker import REQUEST_TIMEOUT, Broker, WrongLastSequence
from .codec import decode_event, encode
from .errors import AdsumError, Undecodable
from .lifecycle import Event
from .names import Key
from .notes import TIME_HEADER, notes_of, time_of
from .reader import StreamReader
from .streams import EVENTS

__all__ = ["Outrun", "Word", "conditions", "last_word", "say", "words"]


class Word(NamedTuple):
    """The last message on an instance's subject. `event` is None where it could not be read."""

    sequence: int
    time: float
    event: Event | None


class Outrun(AdsumError):
    """Somebody spoke first: the event was not stored. `last` is what was said, None if nothing was."""

    def __init__(self, key: Key, last: Word | None) -> None:
        self.key, self.last = key, last
        super().__init__(f"{key}: another event came first")


async def last_word(broker: Broker, key: Key) -> Word | None:
    """The last word on an instance, None if there never was one. Raises BrokerUnavailable, BrokerRefused."""
    raw = await broker.last_message(EVENTS, subjects.event(key))
    if raw is None:
        return None
    imported = 0
    if TIME_HEADER in (raw.headers or {}):
        info = await broker.stream_info(EVENTS)
        imported = notes_of(info).imported if info is not None else 0
    return _word(raw, imported)


async def say(broker: Broker, key: Key, event: Event, after: int, timeout: float = REQUEST_TIMEOUT) -> int:
    """Store an event if the last one on its subject is at sequence `after` (0: none); its sequence.

    Raises Outrun if another came first, Unacknowledged if nobody answered (then look: one's own event id as the
    last word means that it was stored after all), BrokerUnavailable, BrokerRefused.
    """
    try:
        return await broker.store(EVENTS, subjects.event(key), encode(event), conditions(event, after), timeout)
    except WrongLastSequence:
        last = await last_word(broker, key)
        if last is not None and last.event is not None and last.event.id == event.id:
            return last.sequence
        raise Outrun(key, last) from None


def conditions(event: Event, after: int) -> dict[str, str]:
    """The headers on which an event is stored: once, and only if the last one on its subject is at `after`."""
    return {"Nats-Msg-Id": event.id, "Nats-Expected-Last-Subject-Sequence": str(after)}


async def words(broker: Broker, key: Key, start: int = 1) -> list[Word]:
    """All that was said of an instance from `start` on. Raises ReaderLost, BrokerUnavailable, BrokerRefused."""
    said: list[Word] = []
    async with StreamReader(broker, EVENTS, [subjects.event(key)], start) as reader:
        while batch := await reader.to_end():
            said += [Word(message.sequence, message.time, _event(message.data)) for message in batch]
    return said


def _event(data: bytes) -> Event | None:
    try:
        return decode_event(data)
    except Undecodable:
        return None


def _word(raw: RawStreamMsg, imported: int) -> Word:
    sequence = raw.seq or 0
    stored = raw.time.timestamp() if isinstance(raw.time, datetime) else 0.0
    return Word(sequence, time_of(raw.headers, sequence, stored, imported), _event(raw.data or b""))
