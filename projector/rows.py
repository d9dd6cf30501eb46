"""Between what the fold says and the rows of a catalog. Pure; the columns stand in the order of the named queries.

Each database spells a time in its own way, so both directions take a function for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from adsum.events.description import Description
from adsum.events.garbage import PausedGC
from adsum.events.names import Key

from .errors import CatalogRefused
from .fold import Batch, Entry, Rejected, Version, type_of
from .record import Record

__all__ = ["BatchRows", "Row", "Stamp", "instance_rows", "moment", "records_of", "rows_of"]

Row: TypeAlias = tuple[Any, ...]
Stamp: TypeAlias = Callable[[float], object]
"""Seconds since 1970 as the database wants them."""

_describe = msgspec.json.Encoder().encode
_description: Callable[[str], Description] = msgspec.json.Decoder(Description).decode


class BatchRows(NamedTuple):
    """The rows of a batch, a field for each query that writes some; `ended` and `begun` are versions."""

    events: list[Row]
    rejected: list[Row]
    ended: list[Row]
    begun: list[Row]
    present: list[Row]
    gone: list[Row]


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a time in UTC, to the microsecond. Raises CatalogRefused outside the years 1 to 9999."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise CatalogRefused(f"{seconds!r} is no time that a catalog can hold: {error}") from None


def rows_of(batch: Batch, stamp: Stamp) -> BatchRows:
    """What to store of a batch. Raises CatalogRefused for text or a time that one of the databases could not hold."""
    with PausedGC():
        return _rows_of(batch, _Spelling(stamp))


def _rows_of(batch: Batch, spell: _Spelling) -> BatchRows:
    ended, begun = _version_rows(batch.versions, spell)
    return BatchRows(
        events=[_event_row(entry, batch.links[entry.message.sequence], spell) for entry in batch.entries],
        rejected=[_rejected_row(one, batch.links[one.message.sequence], spell) for one in batch.rejected],
        ended=ended,
        begun=begun,
        present=[_instance_row(record, spell) for record in batch.changed.values() if record is not None],
        gone=[tuple(key) for key, record in batch.changed.items() if record is None],
    )


def instance_rows(records: Iterable[Record], stamp: Stamp) -> list[Row]:
    """The rows of those who are there, in this order."""
    spell = _Spelling(stamp)
    return [_instance_row(record, spell) for record in records]


def records_of(rows: Iterable[Iterable[Any]], seconds: Callable[[Any], float]) -> list[Record]:
    """The records in rows of the query `records`; `seconds` undoes the stamp of a time."""
    return [_record(row, seconds) for row in rows]


class _Spelling:
    """How a time and a description are written. Each is written several times in a batch and spelled once."""

    def __init__(self, stamp: Stamp) -> None:
        self.time = cache(stamp)
        self._descriptions: dict[int, str] = {}

    def description(self, said: Description) -> str:
        """Its JSON. By identity: the batch keeps its descriptions alive, and they have no hash."""
        text = self._descriptions.get(id(said))
        if text is None:
            text = self._descriptions[id(said)] = _json(said)
        return text


def _json(said: Description) -> str:
    try:
        text = _describe(said).decode()
    except UnicodeEncodeError as error:
        raise CatalogRefused(f"text that UTF-8 cannot carry: {error}") from None
    if "\\u0000" in text:
        raise CatalogRefused("a description with NUL")
    return text


def _event_row(entry: Entry, link: bytes, spell: _Spelling) -> Row:
    event, message = entry.event, entry.message
    return (
        message.sequence,
        _text(event.id),
        spell.time(message.time),
        *entry.key,
        _text(event.term),
        type_of(event),
        _text(event.by.kind),
        _text(event.by.name),
        message.data,
        link,
    )


def _rejected_row(rejected: Rejected, link: bytes, spell: _Spelling) -> Row:
    """What is set aside must be storable whatever it is, else the log would stand still."""
    message = rejected.message
    return (
        message.sequence,
        spell.time(message.time),
        _kept(message.subject),
        message.data,
        _kept(rejected.reason),
        link,
    )


def _version_rows(versions: Sequence[Version], spell: _Spelling) -> tuple[list[Row], list[Row]]:
    """(ends of versions that were open before this batch, versions that it began, with their ends if it ended them).

    The end of a version is the beginning of the next one of its key, so it is known here unless it was open before.
    """
    ended: list[Row] = []
    begun: list[Row] = []
    place: dict[int, int] = {}
    for version in versions:
        end = (version.sequence, spell.time(version.time), version.cause)
        at = place.get(version.before)
        if at is not None:
            row = begun[at]
            begun[at] = (*row[:3], *end, *row[6:])
        elif version.before:
            ended.append((version.before, *end))
        if version.after is not None:
            place[version.sequence] = len(begun)
            begun.append((*end, None, None, None, *_state(version.after, spell)))
    return ended, begun


def _state(record: Record, spell: _Spelling) -> Row:
    return (
        *record.key,
        _text(record.term),
        record.liveness,
        record.health,
        record.mode,
        _text(record.reason),
        spell.time(record.registered_at),
        spell.description(record.description),
    )


def _instance_row(record: Record, spell: _Spelling) -> Row:
    said = record.description
    return (
        *record.key,
        _text(record.term),
        record.revision,
        record.last,
        record.liveness,
        record.health,
        record.mode,
        _text(record.reason),
        spell.time(record.registered_at),
        spell.time(record.changed_at),
        _text(said.version),
        _text(said.zone),
        said.ttl,
        spell.description(said),
    )


def _record(row: Iterable[Any], seconds: Callable[[Any], float]) -> Record:
    namespace, service, instance, term, revision, last, liveness, health, mode, reason, registered, changed, said = row
    return Record(
        key=Key(namespace, service, instance),
        term=term,
        revision=revision,
        last=last,
        description=_description(said),
        liveness=liveness,
        health=health,
        mode=mode,
        reason=reason,
        registered_at=seconds(registered),
        changed_at=seconds(changed),
    )


def _text(text: str) -> str:
    """SQLite would take NUL, PostgreSQL would not; both must keep the same events, so it is refused for both."""
    if "\0" in text:
        raise CatalogRefused(f"text with NUL: {text[:80]!r}")
    return text


def _kept(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
