"""Making a log out of an export file: the same sequences, times and bytes, under a new epoch.

While it is made the stream bears the note `importing` and takes nothing but what is imported: publishes of services
wait as they do in an outage, and adsumd refuses it. Only once the log was read back and its running hash is that of
the file does it become the log, in one change of its settings. What was cut off before is thrown away by the next
import.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from nats.js.api import StreamConfig, StreamInfo, SubjectTransform

from . import subjects
from .altering import delete_stream, delete_subject
from .archive import Header, Trailer, read_archive
from .broker import Broker
from .chain import link
from .epochs import announced_epochs
from .errors import AdsumError
from .ids import new_epoch, new_id
from .notes import TIME_HEADER, Notes, notes_of
from .publishing import acknowledged
from .reader import Message, StreamReader
from .streams import EVENTS, definitions, ensure_streams, note

__all__ = ["CannotImport", "Imported", "bring", "whoever"]

TOGETHER = 1000
"""Messages a batch; the broker's own limit."""
BYTES_TOGETHER = 4 << 20
STORED_WITHIN = 5.0
_DOOR = "adsum.import."
"""And an id of each import: before the rest of a subject of the log, while it is imported."""
_GAP = "gap"
"""What fills a gap, after the door and after "adsum.": no subject of the log."""

Told = Callable[[int], None]


class CannotImport(AdsumError):
    """The log cannot be imported there as things are. Says what to do."""


class Imported(NamedTuple):
    """What an import came to: the new epoch, and what the file said."""

    epoch: str
    header: Header
    trailer: Trailer


async def bring(broker: Broker, file: str, replicas: int, checked: Told, stored: Told) -> Imported:
    """Make the log of the file. `checked` and `stored` are told of how many messages, as it goes on.

    Raises ArchiveError or CannotImport, then nothing was changed; after any other error the import is to be begun anew.
    """
    header, trailer = _check(file, checked)
    old = await _place(broker)
    seen = {*await announced_epochs(broker), header.epoch, old.epoch if old is not None else ""}
    notes = Notes(new_epoch(seen), imported=trailer.last, importing=whoever())
    if header.first > 1:
        notes = notes._replace(trimmed=header.first - 1, trimmed_head=bytes.fromhex(header.head))
    first = _first_sequence(file, header)
    if old is not None:
        await _clear(broker, old, notes.importing)
    door = f"{_DOOR}{new_id()}."
    await broker.create_stream(_half_made(replicas, first, notes, door))
    await _store(broker, file, first, door, stored)
    await _compare(broker, header, trailer, stored)
    wanted = definitions(replicas)[0]
    await note(
        broker,
        notes._replace(importing=""),
        instead_of=notes,
        subjects=wanted.subjects,
        subject_transform=None,
        deny_delete=True,
        deny_purge=True,
    )
    await ensure_streams(broker, replicas)
    return Imported(notes.epoch, header, trailer)


def whoever() -> str:
    """Who does this, where and since when: for the note that others will read."""
    return f"{socket.gethostname()}, process {os.getpid()}, since {datetime.now(UTC).isoformat(timespec='seconds')}"


def _check(file: str, checked: Told) -> tuple[Header, Trailer]:
    """The whole file is read before anything is done."""
    with read_archive(file) as archive:
        for at, _ in enumerate(archive, start=1):
            if at % TOGETHER == 0:
                checked(at)
        return archive.header, archive.trailer


async def _place(broker: Broker) -> Notes | None:
    """The notes of a log that is to give way, None: there is none. Raises CannotImport for one that holds anything."""
    info = await broker.stream_info(EVENTS)
    if info is None:
        return None
    notes = notes_of(info)
    if notes.importing or not info.state.messages:
        return notes
    raise _holds(broker, info)


def _holds(broker: Broker, info: StreamInfo) -> CannotImport:
    return CannotImport(
        f"the broker at {broker.url} has a log already, with {info.state.messages} events (epoch "
        f"{notes_of(info).epoch}). Import into another broker or account: a log is never written over"
    )


async def _clear(broker: Broker, old: Notes, mine: str) -> None:
    """Delete the log that is to give way, once it bears our note and takes nothing any more.

    Raises CannotImport, NotesChanged if it became a log meanwhile: another import was done, or a service came.
    """
    ours = old._replace(importing=mine)
    info = await note(broker, ours, instead_of=old, **({} if old.importing else {"subjects": [f"{_DOOR}{_GAP}"]}))
    if info.state.messages and not old.importing:
        await note(broker, old, instead_of=ours, subjects=[subjects.ALL_EVENTS])
        raise _holds(broker, info)
    await delete_stream(broker, EVENTS)


def _first_sequence(file: str, header: Header) -> int:
    """Where the stream is to begin: with the first message, whatever was missing before it."""
    with read_archive(file) as archive:
        first = next(iter(archive), None)
    return first.sequence if first is not None else header.first


def _half_made(replicas: int, first: int, notes: Notes, door: str) -> StreamConfig:
    """The stream while it is imported: it takes only what comes by the door, and what fills a gap can be deleted."""
    return replace(
        definitions(replicas)[0],
        subjects=[f"{door}>"],
        subject_transform=SubjectTransform(src=f"{door}>", dest="adsum.>"),
        first_seq=first,
        deny_delete=False,
        deny_purge=False,
        metadata=notes.metadata(),
    )


async def _store(broker: Broker, file: str, first: int, door: str, stored: Told) -> None:
    """Store every message at its own sequence."""
    following, count = first, 0
    with read_archive(file) as archive:
        for batch in _batches(archive):
            for run in _runs(batch):
                await _fill(broker, following, run[0].sequence, door)
                following = await _store_run(broker, run, door)
            count += len(batch)
            stored(count)
    await delete_subject(broker, EVENTS, f"adsum.{_GAP}")  # gaps are gaps again


async def _store_run(broker: Broker, run: Sequence[Message], door: str) -> int:
    """Store messages without a gap between; the sequence that comes after."""
    said = [
        (
            door + message.subject.removeprefix("adsum."),
            message.data,
            {TIME_HEADER: str(round(message.time * 1e6))},
        )
        for message in run
    ]
    _expect(run[-1].sequence, await _store_together(broker, said))
    return run[-1].sequence + 1


async def _fill(broker: Broker, following: int, wanted: int, door: str) -> None:
    """Fill a gap from `following` up to `wanted`, so that what comes then gets its own sequence."""
    while following < wanted:
        fillers = min(wanted - following, TOGETHER)
        _expect(following + fillers - 1, await _store_together(broker, [(door + _GAP, b"", {})] * fillers))
        following += fillers


async def _store_together(broker: Broker, messages: Sequence[tuple[str, bytes, dict[str, str]]]) -> int:
    return await acknowledged(await broker.store_together(EVENTS, messages), STORED_WITHIN)


def _expect(wanted: int, found: int) -> None:
    if found != wanted:
        raise CannotImport(f"somebody else writes into the log: sequence {found} was given out instead of {wanted}")


async def _compare(broker: Broker, header: Header, trailer: Trailer, stored: Told) -> None:
    """Read the log back: it has to be what the file is. Raises CannotImport."""
    head, count = bytes.fromhex(header.head), 0
    async with StreamReader(broker, EVENTS) as reader:
        while messages := await reader.to_end():
            for message in messages:
                head = link(head, message)
            count += len(messages)
            stored(trailer.messages + count)
    if (count, head.hex()) != (trailer.messages, trailer.head):
        raise CannotImport(
            f"the log that was made is not the file's: {count} messages with the running hash {head.hex()}, "
            f"wanted {trailer.messages} with {trailer.head}"
        )


def _batches(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Messages that are stored together: as many as the broker takes at once."""
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and (len(batch) == TOGETHER or size + len(message.data) > BYTES_TOGETHER):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.data)
    if batch:
        yield batch


def _runs(batch: Sequence[Message]) -> Iterator[list[Message]]:
    """The parts of a batch, at least one message each, within which no sequence is missing."""
    run: list[Message] = []
    for message in batch:
        if run and message.sequence != run[-1].sequence + 1:
            yield run
            run = []
        run.append(message)
    yield run
