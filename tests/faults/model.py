"""The model: a dict of who is there, from what was said and acknowledged, and from nothing that the projector says.

It is fed with the log, message by message, and knows of each who may have said it: a test, at the sequence that the
broker acknowledged; a registration of a process that a test runs; or the reaper, of somebody who does fall silent.
Anything else is an event that was lost, invented, or a verdict on the living.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adsum.events import subjects
from adsum.events.codec import decode_event, encode
from adsum.events.description import Description
from adsum.events.errors import Undecodable
from adsum.events.lifecycle import (
    Deregistered,
    Event,
    Expired,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Resumed,
    Updated,
)
from adsum.events.names import Key
from adsum.events.reader import Message

__all__ = ["Life", "Model"]


class Life(msgspec.Struct, kw_only=True):
    """One who is there. `owner`: the name with which the author of its beginning signs."""

    term: str
    owner: str
    revision: int
    liveness: str = "up"
    health: str
    mode: str
    reason: str = ""
    description: Description

    def shown(self) -> dict[str, object]:
        """What a catalog and a cache say of it."""
        return {
            field: msgspec.to_builtins(getattr(self, field)) for field in self.__struct_fields__ if field != "owner"
        }


class Model:
    """`lives`: who is there. `at`: the sequence up to which the log was read. `processes`: who may speak unasked.

    `silent` are the terms that the reaper may judge; of those in `back` it may also say that they resumed.
    """

    def __init__(self, processes: Sequence[str]) -> None:
        self.lives: dict[Key, Life] = {}
        self.past: list[tuple[Key, str]] = []
        self.silent: set[str] = set()
        self.back: set[str] = set()
        self.at = 0
        self.told: list[str] = []
        self._processes = processes
        self._acknowledged: dict[int, tuple[Key, bytes]] = {}
        self._seen: set[str] = set()

    def in_order(self) -> list[tuple[Key, Life]]:
        """Who is there, by id."""
        return [(key, self.lives[key]) for key in sorted(self.lives)]

    def old_lives(self) -> list[tuple[Key, str]]:
        """Those that are over."""
        there = {life.term for life in self.lives.values()}
        return [(key, term) for key, term in self.past if term not in there]

    def acknowledged(self, key: Key, said: Event | bytes, sequence: int) -> None:
        """The broker told at which sequence it stored what a test said."""
        assert sequence not in self._acknowledged, f"two messages were acknowledged at {sequence}"
        self._acknowledged[sequence] = key, said if isinstance(said, bytes) else encode(said)

    def read(self, messages: Sequence[Message]) -> None:
        """The log goes on with these, up to its end."""
        for message in messages:
            assert message.sequence == self.at + 1, f"after {self.at} the log goes on at {message.sequence}"
            self.at = message.sequence
            key = subjects.key_of(message.subject)
            said = self._acknowledged.pop(message.sequence, None)
            assert said is None or said == (key, message.data), f"{message} was acknowledged for {said}"
            event = _read(message.data)
            self.told.append(f"{message.sequence} {key.id} {event or message.data!r}")
            if said is None:
                assert event is not None, f"nobody said {message}"
                self._check_may_say(key, event)
            if event is not None and event.id not in self._seen:
                self._seen.add(event.id)
                self._take(key, event, message.sequence)
        assert not self._acknowledged, f"acknowledged and not in the log: {self._acknowledged}"

    def _check_may_say(self, key: Key, event: Event) -> None:
        if event.by.kind == "owner" and event.by.name in self._processes:
            return
        assert event.by.kind == "reaper", f"nobody said {event}"
        life = self.lives.get(key)
        assert life is not None, f"a verdict on somebody who is gone: {event}"
        assert event.term == life.term, f"a verdict on another life than {life}: {event}"
        assert life.term in self.silent | self.back, f"a verdict on the living: {event}"
        match event:
            case Lapsed(evidence=evidence):
                assert life.liveness == "up", f"it is stale: {event}"
                assert evidence.silent > evidence.ttl == life.description.ttl, f"too early for {life}: {event}"
            case Resumed():
                assert life.liveness == "stale", f"it is up: {event}"
                assert life.term in self.back, f"it did not beat again: {event}"
            case Expired(evidence=evidence):
                assert life.liveness == "stale", f"it was never stale: {event}"
                assert evidence.silent > 2 * evidence.ttl == 2 * life.description.ttl, f"too early for {life}: {event}"
            case _:
                raise AssertionError(f"no verdict: {event}")

    def _take(self, key: Key, event: Event, sequence: int) -> None:
        """What an event that was never seen before does."""
        life = self.lives.get(key)
        if isinstance(event, Registered):
            self.past.append((key, event.id))
            self.lives[key] = Life(
                term=event.id,
                owner=event.by.name,
                revision=sequence,
                health=event.health,
                mode=event.mode,
                description=event.instance,
            )
        elif life is not None and event.term == life.term:
            if isinstance(event, Deregistered | Expired):
                del self.lives[key]
                return
            before = msgspec.structs.replace(life)
            _change(life, event)
            if life != before:
                life.revision = sequence


def _change(life: Life, event: Event) -> None:
    match event:
        case Updated():
            life.description = event.instance
        case HealthChanged():
            life.health, life.reason = event.health, event.reason
        case ModeChanged():
            life.mode, life.reason = event.mode, event.reason
        case Lapsed():
            life.liveness = "stale"
        case Resumed():
            life.liveness = "up"


def _read(data: bytes) -> Event | None:
    try:
        return decode_event(data)
    except Undecodable:
        return None
