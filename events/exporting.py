"""Writing the log, or a part of it, into an export file (see `archive`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import NamedTuple

from . import subjects
from .archive import ArchiveWriter, Header, Trailer, write_archive
from .broker import Broker
from .chain import link
from .errors import AdsumError, BrokerUnavailable, StreamMissing
from .notes import Notes, notes_of
from .questions import Moment
from .reader import Message, ReaderLost, StreamReader
from .streams import EVENTS, epoch_of_log

__all__ = ["Exported", "LogReplaced", "Span", "export", "log_now"]

WAIT = 10.0
"""Seconds for a connection that was lost on the way to come back."""


class LogReplaced(AdsumError):
    """While the log was read it became another one, or was trimmed."""


class Span(NamedTuple):
    """What of the log is wanted: what came after `since`, up to the first message of which `ends` holds.

    `new`: into a file that is not there yet.
    """

    since: Moment = Moment(revision=0)
    ends: Callable[[Message], bool] = lambda message: False
    namespace: str = ""
    new: bool = False


class Exported(NamedTuple):
    """What a file says of itself."""

    header: Header
    trailer: Trailer


async def log_now(broker: Broker) -> tuple[Notes, int, int]:
    """The log's notes, its last sequence and how many messages it holds. Raises StreamMissing, LogUnfinished."""
    info = await broker.stream_info(EVENTS)
    if info is None:
        raise StreamMissing(f"stream {EVENTS} does not exist: no adsumd has run on this broker yet")
    epoch_of_log(info)
    return notes_of(info), info.state.last_seq, info.state.messages


async def export(broker: Broker, file: str, span: Span, told: Callable[[int], None]) -> Exported:
    """Write the file, up to what is the log's end now. `told` hears of how many messages were read.

    The log is read from its beginning, since the running hash before the first message that is wanted belongs into the
    file. Raises LogReplaced, OSError; then there is no file.
    """
    notes, end, _ = await log_now(broker)
    first, head = notes.trimmed + 1, notes.trimmed_head
    with ExitStack() as stack:
        writer: ArchiveWriter | None = None
        header = _header(notes, first, head, span)
        async for count, message in _read(broker, span.namespace, first, end):
            if count % 1000 == 0:
                told(count)
            if span.ends(message):
                break
            if writer is None and _is_before(message, span.since):
                head, first = link(head, message), message.sequence + 1
                continue
            if writer is None:
                header = _header(notes, first, head, span)
                writer = stack.enter_context(write_archive(file, header, span.new))
            writer.add(message)
        if writer is None:
            header = _header(notes, first, head, span)
            writer = stack.enter_context(write_archive(file, header, span.new))
        after, _, _ = await log_now(broker)
        if (after.epoch, after.trimmed) != (notes.epoch, notes.trimmed):
            raise LogReplaced("while the log was read it became another one, or was trimmed: export it again")
    return Exported(header, writer.trailer)


def _header(notes: Notes, first: int, head: bytes, span: Span) -> Header:
    written = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return Header(epoch=notes.epoch, first=first, head=head.hex(), namespace=span.namespace, written=written)


def _is_before(message: Message, since: Moment) -> bool:
    if since.revision is not None:
        return message.sequence <= since.revision
    return since.time is None or message.time <= since.time  # no time: now


async def _read(broker: Broker, namespace: str, first: int, end: int) -> AsyncIterator[tuple[int, Message]]:
    """(how many, message) from `first` to `end`; goes on where it was when the connection was lost meanwhile."""
    wanted = [subjects.events(namespace)] if namespace else []
    count = 0
    while True:
        try:
            async with StreamReader(broker, EVENTS, wanted, start=first) as reader:
                while batch := await reader.to_end():
                    for message in batch:
                        if message.sequence > end:
                            return
                        count, first = count + 1, message.sequence + 1
                        yield count, message
            return
        except (ReaderLost, BrokerUnavailable):
            await broker.ready(WAIT)
