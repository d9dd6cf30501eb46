"""The mirror of ADSUM_TOPOLOGY: what its last message of each subject tells, and the digests of that."""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

from adsum.events import subjects
from adsum.events.codec import decode_topology
from adsum.events.errors import Undecodable
from adsum.events.names import Key
from adsum.events.reader import Message
from adsum.events.signals import Instance
from adsum.events.streams import TOMBSTONE_TTL

from .marks import Announced

__all__ = ["Mirror", "Stored"]

FORGOTTEN_BEFORE = 60.0
"""Seconds before the broker drops a tombstone."""

log = logging.getLogger("adsum.announcer")


class Stored(NamedTuple):
    """The last message of a topology subject: its sequence there, and what it tells. No epoch: it cannot be read."""

    sequence: int
    epoch: str
    revision: int
    present: bool


class Mirror:
    """Pure but for its log lines. `announced` is what a cache can know: the digests of all that is present."""

    def __init__(self, epoch: str) -> None:
        self.announced = Announced(epoch)
        self._stored: dict[Key, Stored] = {}
        self._tombstones: deque[tuple[float, Key]] = deque()

    def of(self, key: Key) -> Stored | None:
        """What is known of a subject."""
        return self._stored.get(key)

    @property
    def count(self) -> int:
        """How many subjects are known."""
        return len(self._stored)

    def keys(self) -> set[Key]:
        """All that are known."""
        return set(self._stored)

    def present(self) -> list[Key]:
        """Every instance of which a state is stored, or what cannot be read."""
        return [key for key, stored in self._stored.items() if stored.present]

    def saw(self, message: Message, now: float) -> Key | None:
        """Note a message of the stream, read at `now` (seconds); its key, None if it tells nothing new."""
        try:
            key = subjects.key_of(message.subject)
        except Undecodable:
            return None
        stored = _stored(key, message)
        if self._stored.get(key) == stored:
            return None
        self.note(key, stored, now)
        return key

    def note(self, key: Key, stored: Stored, now: float) -> None:
        """Note what stands at a subject; an older message than the one known is none."""
        before = self._stored.get(key)
        if before is not None and before.sequence > stored.sequence:
            return  # an acknowledgement that came after the next message was read
        self._stored[key] = stored
        told = stored.revision if stored.epoch == self.announced.epoch else 0
        self.announced.replace(key, _revision(before), _revision(stored), told)
        if not stored.present:
            self._tombstones.append((now, key))

    def forget(self, key: Key) -> None:
        """Nothing stands at a subject any more."""
        self.announced.replace(key, _revision(self._stored.pop(key, None)), None, 0)

    def forget_tombstones(self, now: float) -> None:
        """What the broker is about to drop need not be remembered: then it never holds less than is known."""
        while self._tombstones and self._tombstones[0][0] < now - TOMBSTONE_TTL + FORGOTTEN_BEFORE:
            _, key = self._tombstones.popleft()
            stored = self._stored.get(key)
            if stored is not None and not stored.present:
                del self._stored[key]


def _stored(key: Key, message: Message) -> Stored:
    """What a message tells. One that cannot be read, or tells of another instance than its subject, has no epoch."""
    try:
        told = decode_topology(message.data)
    except Undecodable as error:
        log.warning("%s holds what is no topology message: %s", message.subject, error)
        return Stored(message.sequence, "", 0, True)
    if told.key != key:
        log.warning("%s tells of another instance: %s", message.subject, told.key)
        return Stored(message.sequence, "", 0, True)
    return Stored(message.sequence, told.epoch, told.revision, isinstance(told, Instance))


def _revision(stored: Stored | None) -> int | None:
    """The revision that a cache holds; None where it holds nothing."""
    return stored.revision if stored is not None and stored.present and stored.epoch else None
