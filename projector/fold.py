"""The fold: what an event makes of a record. Pure and total, so the catalog at revision N is a function of the log.

Rules: a life is begun by its Registered and by nothing else; every other event acts only on the life (term) it
names; the later Registered of an id wins; an event id that was folded before changes nothing, for ever.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from adsum.events.chain import GENESIS, link
from adsum.events.codec import decode_event
from adsum.events.description import MAX_TTL
from adsum.events.errors import InvalidValue, Undecodable
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
from adsum.events.names import Key, check_label
from adsum.events.reader import Message
from adsum.events.subjects import key_of

from .record import Record

__all__ = ["Batch", "Entry", "Rejected", "Version", "fold", "fold_batch", "identify", "read_entry", "type_of"]

MAX_EVENT = 65536
"""Bytes of an event: far above what a checked description can take, far below what the broker carries."""
REMEMBERED = 16_384
"""Keys whose names were found good, so that they are not looked at with each message."""


class Entry(NamedTuple):
    """One message of the log that could be read."""

    key: Key
    event: Event
    message: Message


class Rejected(NamedTuple):
    """One message of the log that could not be read or stored, kept raw with the reason."""

    message: Message
    reason: str
    key: Key | None


class Version(NamedTuple):
    """What became of an instance at `sequence`: `after` is None when that event ended the life `term`.

    `cause` is the type of the event, as in its encoding ("registered", "expired", …); `before` the revision at which
    the version began that ended now, 0: there was none.
    """

    key: Key
    term: str
    sequence: int
    time: float
    cause: str
    after: Record | None
    before: int


class Batch(NamedTuple):
    """What one transaction stores: `changed` maps each key that moved to its record, None where it is gone.

    `versions` are all the steps on the way, in order. `last` is the message the checkpoint moves to, `last_id` what
    identifies that message (see `identify`). `links` gives the running hash at each sequence (see `chain`).
    """

    entries: tuple[Entry, ...]
    rejected: tuple[Rejected, ...]
    versions: tuple[Version, ...]
    changed: dict[Key, Record | None]
    last: Message
    last_id: str
    links: dict[int, bytes]

    @property
    def head(self) -> bytes:
        """The running hash up to the last message."""
        return self.links[self.last.sequence]


def fold(record: Record | None, key: Key, event: Event, sequence: int, time: float) -> Record | None:
    """The record after `event`, stored at `sequence` at the broker's `time`; None where nobody is there."""
    if isinstance(event, Registered):
        return _begin(key, event, sequence, time)
    if record is None:
        return None
    changes: dict[str, object] = {}
    if event.term == record.term:
        if isinstance(event, Deregistered | Expired):
            return None
        changes = _changes(record, event)
    if all(getattr(record, field) == value for field, value in changes.items()):
        return msgspec.structs.replace(record, last=sequence)
    return msgspec.structs.replace(record, last=sequence, revision=sequence, changed_at=time, **changes)


def _begin(key: Key, event: Registered, sequence: int, time: float) -> Record:
    return Record(
        key=key,
        term=event.term,
        revision=sequence,
        last=sequence,
        description=event.instance,
        health=event.health,
        mode=event.mode,
        registered_at=time,
        changed_at=time,
    )


def _changes(record: Record, event: Event) -> dict[str, object]:
    match event:
        case Updated(instance=description):
            return {"description": description}
        case HealthChanged(health=health, reason=reason):
            return {"health": health, "reason": reason}
        case ModeChanged(mode=mode, reason=reason):
            return {"mode": mode, "reason": reason}
        case Lapsed():
            return {"liveness": "stale"}
        case Resumed():
            return {"liveness": "up"}
        case _:
            return {}


def read_entry(message: Message) -> Entry | Rejected:
    """The event in a message, or why it is none that the fold may act on."""
    key: Key | None = None
    try:
        key = key_of(message.subject)
        if len(message.data) > MAX_EVENT:
            raise InvalidValue("event", f"{len(message.data)} bytes", f"must be at most {MAX_EVENT} bytes")
        _check_names(key)
        event = decode_event(message.data)
        if isinstance(event, Registered | Updated):
            _check_usable(event)
    except (Undecodable, InvalidValue) as error:
        return Rejected(message, str(error), key)
    return Entry(key, event, message)


@lru_cache(REMEMBERED)
def _check_names(key: Key) -> None:
    """Raise InvalidValue unless each is a label. Most messages are about keys that were met just before."""
    for field, name in zip(("namespace", "service", "instance id"), key, strict=True):
        check_label(field, name)


def identify(message: Message) -> str:
    """What tells this message from any other that could stand at its sequence: the event's id, else a hash."""
    try:
        return decode_event(message.data).id
    except Undecodable:
        return f"sha256:{hashlib.sha256(message.data).hexdigest()}"


def fold_batch(
    records: Mapping[Key, Record],
    messages: Sequence[Message],
    folded: Collection[str] = (),
    refused: Mapping[int, str] | None = None,
    head: bytes = GENESIS,
) -> Batch:
    """Fold messages, at least one, in the order of the log.

    `records` are the live ones before, `head` is the running hash before; `folded` are those event ids among the
    messages that were folded earlier; `refused` the sequences that the database cannot store, with its reason.
    """
    entries: list[Entry] = []
    rejected: list[Rejected] = []
    versions: list[Version] = []
    changed: dict[Key, Record | None] = {}
    links: dict[int, bytes] = {}
    seen = set(folded)
    for message in messages:
        head = links[message.sequence] = link(head, message)
        read = read_entry(message)
        key = read.key
        if refused and message.sequence in refused:
            read = Rejected(message, refused[message.sequence], key)
        before = changed[key] if key in changed else records.get(key) if key else None
        if isinstance(read, Entry) and read.event.id in seen:
            read = Rejected(message, f"event {read.event.id} was folded before", key)
        if isinstance(read, Rejected):
            rejected.append(read)
            if key is not None and before is not None:
                changed[key] = msgspec.structs.replace(before, last=message.sequence)
            continue
        entries.append(read)
        seen.add(read.event.id)
        after = fold(before, read.key, read.event, message.sequence, message.time)
        if after is not before:
            changed[read.key] = after
        version = _version(read, before, after)
        if version is not None:
            versions.append(version)
    last = messages[-1]
    last_id = entries[-1].event.id if entries and entries[-1].message is last else identify(last)
    return Batch(tuple(entries), tuple(rejected), tuple(versions), changed, last, last_id, links)


def _version(entry: Entry, before: Record | None, after: Record | None) -> Version | None:
    if before is None and after is None:
        return None
    if before is not None and after is not None and after.revision == before.revision:
        return None
    lived = after or before
    assert lived is not None
    message = entry.message
    began = before.revision if before is not None else 0
    return Version(entry.key, lived.term, message.sequence, message.time, type_of(entry.event), after, began)


def type_of(event: Event) -> str:
    """The type of an event as in its encoding: "registered", "health-changed", …"""
    return str(event.__struct_config__.tag)


def _check_usable(event: Registered | Updated) -> None:
    """What the fold and the reaper rely on; all else that a newer or foreign author says is kept as it is."""
    if isinstance(event, Registered) and event.term != event.id:
        raise InvalidValue("term", event.term, "must be the id of its registered event", event.id)
    if not event.instance.endpoints:
        raise InvalidValue("endpoints", 0, "an instance has at least one endpoint")
    if not 0 < event.instance.ttl <= MAX_TTL:
        raise InvalidValue("ttl", event.instance.ttl, f"must be above 0 and at most {MAX_TTL:g} seconds")
