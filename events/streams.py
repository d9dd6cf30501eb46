"""The three streams, and how one is created or compared. A stream that holds data is never changed silently.

One setting is added to the log of an adsum before it: that it takes batches. It changes nothing of what is stored.

ADSUM_EVENTS    the log, kept for ever
ADSUM_BEATS     the last heartbeat per life, and the ticks
ADSUM_TOPOLOGY  the last state per instance, republished as changes
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from typing import Any

from nats.js.api import (
    DiscardPolicy,
    PersistMode,
    RePublish,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
)

from . import subjects
from .altering import change_stream
from .broker import Broker
from .errors import AdsumError, BrokerRefused, LogUnfinished, StreamMismatch, StreamMissing
from .ids import new_epoch
from .notes import Notes, notes_in, notes_of

__all__ = [
    "BEATS",
    "EVENTS",
    "IMPORTING",
    "TOPOLOGY",
    "TRIMMING",
    "NotesChanged",
    "alone",
    "compare",
    "definitions",
    "ensure_streams",
    "epoch_of_log",
    "note",
    "read_epoch",
    "renew_epoch",
]

EVENTS = "ADSUM_EVENTS"
BEATS = "ADSUM_BEATS"
TOPOLOGY = "ADSUM_TOPOLOGY"
BEATS_MAX_AGE = 3600.0
"""Seconds the broker keeps a heartbeat; above twice the longest TTL (`description.MAX_TTL`)."""
TOMBSTONE_TTL = 3600
"""Seconds the broker keeps the tombstone of an instance."""
IMPORTING = (
    "the log is not whole: an import is at work on it, or was cut off ({}). "
    "If none is at work, run `adsum import FILE` again: it begins anew"
)
TRIMMING = (
    "the log takes nothing: a trim is at work on it, or was cut off ({}). If none is at work, run `adsum trim --finish`"
)
log = logging.getLogger("adsum.streams")

_COMPARED = (
    "subjects",
    "retention",
    "storage",
    "num_replicas",
    "discard",
    "max_age",
    "max_msgs",
    "max_bytes",
    "max_msgs_per_subject",
    "max_msg_size",
    "max_consumers",
    "no_ack",
    "mirror",
    "sources",
    "subject_transform",
    "deny_delete",
    "deny_purge",
    "allow_direct",
    "allow_msg_ttl",
    "republish",
    "persist_mode",
    "sealed",
)


def definitions(replicas: int = 1) -> tuple[StreamConfig, ...]:
    """The streams as adsum needs them. One replica: on disk; three or five: heartbeats in the memory of each.

    `persist_mode: async` (not flushed before the acknowledgement) is for what the next beat or announcement
    repairs, and the broker refuses it on replicated streams; a memory stream of one replica would vanish whole.
    """
    single = replicas == 1
    unflushed = PersistMode.ASYNC if single else None
    common = StreamConfig(
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        num_replicas=replicas,
        max_msgs=-1,
        max_bytes=-1,
        max_age=0,
        duplicate_window=120,
    )
    events = replace(
        common, name=EVENTS, subjects=[subjects.ALL_EVENTS], deny_delete=True, deny_purge=True, allow_atomic=True
    )
    beats = replace(
        common,
        name=BEATS,
        subjects=[subjects.ALL_BEATS, subjects.TICK],
        storage=StorageType.FILE if single else StorageType.MEMORY,
        persist_mode=unflushed,
        max_age=BEATS_MAX_AGE,
        max_msgs_per_subject=1,
    )
    topology = replace(
        common,
        name=TOPOLOGY,
        subjects=[subjects.ALL_TOPOLOGY],
        persist_mode=unflushed,
        max_msgs_per_subject=1,
        allow_direct=True,
        allow_msg_ttl=True,
        republish=RePublish(src=subjects.REPUBLISH_FROM, dest=subjects.REPUBLISH_TO),
    )
    return events, beats, topology


async def ensure_streams(broker: Broker, replicas: int = 1, epochs_seen: tuple[str, ...] = ()) -> str:
    """Create the streams that are missing, compare those that are there; give back the epoch of the log.

    A new log gets an epoch above all of `epochs_seen`. Raises StreamMismatch, naming every field that differs, and
    LogUnfinished while the log is imported or trimmed.
    """
    for wanted in definitions(replicas):
        if wanted.name == EVENTS:
            wanted.metadata = Notes(epoch=new_epoch(epochs_seen)).metadata()
            await _check_finished(broker)
        await _ensure(broker, wanted)
    return await read_epoch(broker)


async def read_epoch(broker: Broker) -> str:
    """The epoch of the log that is there now. Raises StreamMissing if there is none."""
    info = await broker.stream_info(EVENTS)
    if info is None:
        raise StreamMissing(f"stream {EVENTS} does not exist: no adsumd has run on this broker yet")
    return epoch_of_log(info)


async def renew_epoch(broker: Broker, epochs_seen: Iterable[str] = ()) -> str:
    """Give the log an epoch above its own and all of `epochs_seen`: it is another log than it was. The new one."""
    info = await broker.stream_info(EVENTS)
    if info is None:
        raise StreamMissing(f"stream {EVENTS} does not exist")
    epoch = new_epoch((epoch_of_log(info), *epochs_seen))
    await note(broker, notes_of(info)._replace(epoch=epoch))
    return epoch


class NotesChanged(AdsumError):
    """Another command wrote into the notes of the log meanwhile; nothing was changed."""


async def note(broker: Broker, notes: Notes, instead_of: Notes | None = None, **settings: object) -> StreamInfo:
    """Write these notes into the log's stream, and change these settings of it in the same step.

    Raises NotesChanged if the notes there are not those that they are to replace.
    """

    def change(found: dict[str, Any]) -> None:
        there = notes_in(found.get("metadata"))
        if instead_of is not None and there != instead_of:
            raise NotesChanged(f"another command is at work on the log, or was ({there.trimming or there.importing})")
        found["metadata"] = notes.within(found.get("metadata") or {})
        found.update(settings)

    return await change_stream(broker, EVENTS, change)


def epoch_of_log(info: StreamInfo) -> str:
    """The epoch in the metadata of the log's stream. Raises LogUnfinished while it is being imported."""
    notes = notes_of(info)
    if notes.importing:
        raise LogUnfinished(IMPORTING.format(notes.importing))
    if not notes.epoch:
        raise StreamMismatch(EVENTS, [("metadata adsum-epoch", None, "a UUIDv7")])
    return notes.epoch


async def _check_finished(broker: Broker) -> None:
    info = await broker.stream_info(EVENTS)
    notes = notes_of(info) if info is not None else Notes()
    if notes.importing:
        raise LogUnfinished(IMPORTING.format(notes.importing))
    if notes.trimming:
        raise LogUnfinished(TRIMMING.format(notes.trimming))


async def _ensure(broker: Broker, wanted: StreamConfig) -> None:
    name = str(wanted.name)
    info = await broker.stream_info(name)
    if info is None:
        try:
            await broker.create_stream(wanted)
            return
        except AdsumError:  # another daemon may have been faster, then its stream is the one to compare
            info = await broker.stream_info(name)
            if info is None:
                raise
    differences = compare(info.config, wanted)
    if differences:
        raise StreamMismatch(name, differences)
    if wanted.allow_atomic and not info.config.allow_atomic:
        await _allow_batches(broker, name)


async def _allow_batches(broker: Broker, name: str) -> None:
    try:
        await change_stream(broker, name, lambda found: found.update(allow_atomic=True))
    except BrokerRefused as error:
        log.warning("%s takes no batches, so many registrations at once are slower: %s", name, error)
    else:
        log.info("%s was made before batches: from now on it takes them (allow_atomic)", name)


def alone(info: StreamInfo) -> bool:
    """Whether who told this of a replicated stream does not lead a majority of its servers. Pure.

    A stream without a leader is told of by any server, as that one knows it. And a leader learns what was committed
    before it was elected only once something is committed under it.
    """
    replicas = info.config.num_replicas or 1
    if info.cluster is None or replicas == 1:
        return False
    if not info.cluster.leader:
        return True
    return sum(bool(peer.current) for peer in info.cluster.replicas or ()) < replicas // 2


def compare(found: StreamConfig, wanted: StreamConfig) -> list[tuple[str, object, object]]:
    """The fields in which two definitions differ, as (field, found, wanted). Pure."""
    pairs = ((field, _plain(getattr(found, field)), _plain(getattr(wanted, field))) for field in _COMPARED)
    return [(field, is_, want) for field, is_, want in pairs if is_ != want]


def _plain(value: object) -> object:
    """The value as compared: unset, false, zero and the broker's own defaults are the same."""
    if isinstance(value, RePublish):
        return f"{value.src} > {value.dest}"
    if isinstance(value, Enum):
        value = value.value
    if value in (None, False, 0, -1, "default", []):
        return None
    return sorted(value) if isinstance(value, list) else value
