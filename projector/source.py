"""Where the messages of a log come from that is read to an end: the broker, and exports of what was removed from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple, TypeAlias

from adsum.events.archive import read_archive
from adsum.events.broker import Broker
from adsum.events.chain import GENESIS, link
from adsum.events.errors import BrokerUnavailable
from adsum.events.exporting import log_now
from adsum.events.notes import Notes
from adsum.events.reader import Message, ReaderLost, StreamReader
from adsum.events.streams import EVENTS

from .errors import LogChanged, Refusal

__all__ = ["Log", "Source", "check_base", "look_at_log", "read_all", "read_log"]

BATCH = 5000
PATIENCE = 30.0
"""Seconds for which a broker that went away is waited for."""
GIVE_BASE = "Give the exports of what was removed: --base FILE, repeated for several, the oldest first."

Source: TypeAlias = AsyncGenerator[list[Message], None]
Check: TypeAlias = Callable[[], Awaitable[None]]


class Log(NamedTuple):
    """The log as it was at a moment: what it says of itself, and its last sequence."""

    notes: Notes
    end: int


async def look_at_log(broker: Broker) -> Log:
    """The log now. Raises StreamMissing, LogUnfinished, BrokerUnavailable, BrokerRefused."""
    notes, end, _ = await log_now(broker)
    return Log(notes, end)


async def read_all(broker: Broker, log: Log, base: Sequence[str], after: int, end: int, check: Check) -> Source:
    """Everything above `after` up to `end`, in order: what was removed from the exports, the rest from the log.

    `check` is awaited before each further try to read on. Raises BrokerUnavailable once the broker was away for
    PATIENCE, ArchiveError, and what `check` raises.
    """
    removed = min(end, log.notes.trimmed)
    if after < removed:
        for messages in _exported(base, after, removed):
            yield messages
            await asyncio.sleep(0)
    async with aclosing(read_log(broker, max(after, removed), end, check)) as source:
        async for messages in source:
            yield messages


async def read_log(broker: Broker, after: int, end: int, check: Check) -> Source:
    """What the log itself holds above `after` up to `end`."""
    while after < end:
        try:
            async with StreamReader(broker, EVENTS, start=after + 1) as reader:
                while after < end:
                    messages = await reader.to_end(BATCH)
                    if messages and messages[-1].sequence > end:
                        messages = [message for message in messages if message.sequence <= end]
                    if not messages:  # the sequences up to the end may hold nothing, where the disk was full
                        return
                    await _check_holes(broker, after, messages)
                    yield messages
                    after = messages[-1].sequence
        except (ReaderLost, BrokerUnavailable):
            await broker.ready(PATIENCE)
            await check()


async def _check_holes(broker: Broker, after: int, messages: Sequence[Message]) -> None:
    """Sequences may hold nothing, where the disk was full; not for being trimmed just now. Raises LogChanged."""
    if messages[-1].sequence - after != len(messages):
        trimmed = (await look_at_log(broker)).notes.trimmed
        if trimmed > after:
            raise LogChanged(f"the log was trimmed up to {trimmed} while it was read, at {after}", GIVE_BASE)


async def check_base(base: Sequence[str], log: Log) -> None:
    """Make sure that the exports, each read whole, are what was removed. Raises ArchiveError, Refusal."""
    trimmed = log.notes.trimmed
    if trimmed and not base:
        raise Refusal(f"the log begins after revision {trimmed}: what was up to there was removed", GIVE_BASE)
    reached, head = await asyncio.to_thread(_head_of, base, trimmed)
    if base and head != log.notes.trimmed_head:
        what = f"the exports, up to revision {reached}, are not what was removed from this log up to revision {trimmed}"
        raise Refusal(f"{what}: the running hashes differ", GIVE_BASE)


def _head_of(base: Sequence[str], end: int) -> tuple[int, bytes]:
    """(the last sequence up to `end`, the running hash there) of these exports one after the other."""
    reached, head = 0, GENESIS
    for file in base:
        with read_archive(file) as archive:
            if archive.header.namespace:
                what = f"{file} holds the namespace {archive.header.namespace} alone"
                raise Refusal(what, "The base of a log is an export of all of it.")
            for message in archive:
                if reached < message.sequence <= end:
                    reached, head = message.sequence, link(head, message)
    return reached, head


def _exported(base: Sequence[str], after: int, end: int) -> Iterator[list[Message]]:
    batch: list[Message] = []
    for file in base:
        with read_archive(file) as archive:
            for message in archive:
                if not after < message.sequence <= end:
                    continue
                batch.append(message)
                after = message.sequence
                if len(batch) == BATCH:
                    yield batch
                    batch = []
    if batch:
        yield batch
