"""Verifying: the log is read once, as a stream, and folded; what says to be its fold is held against that.

The catalog is compared while the log is read, each row once both have come to it; the topology and a cache at the end,
when the fold has come to what they tell. Nothing is written anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial

import msgspec

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.names import Key
from adsum.events.reader import Message
from adsum.events.signals import Departed, Instance
from adsum.events.streams import EVENTS, TOPOLOGY
from adsum.events.tools import Compared, Difference, Look, Progress, Verified

from .auditing import Audit
from .errors import LogChanged, Refusal
from .fold import Batch, identify
from .folding import Folding
from .kept import KeptHead
from .ledger import NO_CATALOG, Ledger, Stands, open_ledger
from .record import departed, instance_of
from .rows import Row, moment
from .scratch import Scratch
from .settling import Place, compare_states, look_at_topology, settled
from .source import Log, Source, check_base, look_at_log, read_all, read_log

__all__ = ["verify", "verify_alone"]

WRONG_LOG = "Verify it again; a log that was put back or imported is another one."


async def verify(
    broker: Broker,
    *,
    catalog: str | None,
    head: tuple[str, int | None] | None,
    cache: Look | None,
    base: Sequence[str],
    progress: Progress,
) -> Verified:
    """See `adsum.events.tools.Verify`."""
    async with AsyncExitStack() as stack:
        ledger = await stack.enter_async_context(open_ledger(catalog)) if catalog is not None else None
        stands = await _stands(ledger) if ledger is not None else None
        log = await look_at_log(broker)  # after the catalog, so that it holds all that the catalog does
        await check_base(base, log)
        scratch = stack.enter_context(Scratch(ledger.stamp if ledger is not None else moment))
        reading = _Reading(scratch, log.notes.epoch, head)
        if ledger is not None and stands is not None:
            reading.audit = Audit(ledger, stands, log.notes.epoch, log.notes.trimmed)
        bus = _Bus(broker, log, reading)
        await bus.begin()
        began = time.monotonic()
        await reading.run(read_all(broker, log, base, 0, log.end, bus.check_same), log.end, progress)
        verified = reading.verified(time.monotonic() - began)
        if catalog is None:
            verified = _add(verified, not_compared="a catalog: --catalog DSN names one")
        return await bus.compare(verified, cache)


async def verify_alone(catalog: str, *, head: tuple[str, int | None] | None, progress: Progress) -> Verified:
    """See `adsum.events.tools.VerifyAlone`."""
    async with open_ledger(catalog) as ledger:
        stands = await _stands(ledger)
        if stands.complete_from > 1:
            what = f"what was before revision {stands.complete_from} was removed from {ledger.name}"
            raise Refusal(what, "Verify it with its log, and the exports of what was removed (--base).")
        epoch, end = stands.checkpoint.epoch, stands.checkpoint.sequence
        with Scratch(ledger.stamp) as scratch:
            reading = _Reading(scratch, epoch, head)
            reading.audit = Audit(ledger, stands, epoch, 0)
            began = time.monotonic()
            await reading.run(_own_events(ledger), end, progress)
            verified = reading.verified(time.monotonic() - began)
        return _add(verified, not_compared="the log: the catalog's own events were taken for it")


async def _stands(ledger: Ledger) -> Stands:
    stands = await ledger.stands()
    if stands is None:
        raise Refusal(f"the catalog {ledger.name} has not folded any log yet", NO_CATALOG)
    return stands


def _add(
    verified: Verified, compared: Compared | None = None, not_compared: str = "", found: Difference | None = None
) -> Verified:
    return msgspec.structs.replace(
        verified,
        compared=verified.compared + ((compared,) if compared else ()),
        not_compared=verified.not_compared + ((not_compared,) if not_compared else ()),
        differences=verified.differences + ((found,) if found is not None else ()),
    )


# ---- the log


class _Reading:
    """The log as it is read and folded, and what is held against it meanwhile.

    `departed`: how those left that are to be told of, and all who leave once the log was read to its end.
    """

    def __init__(self, scratch: Scratch, epoch: str, head: tuple[str, int | None] | None) -> None:
        self.folding = Folding(scratch, epoch, self._committed)
        self.audit: Audit | None = None
        self.departed: dict[Key, Departed] = {}
        self.to_be_told: set[Key] | None = set()
        self._scratch, self._epoch = scratch, epoch
        self._kept = KeptHead(*head) if head is not None else None
        self._messages = 0

    async def run(self, source: Source, end: int, progress: Progress) -> None:
        """Read the source to its end."""
        async with aclosing(source):
            async for messages in source:
                await self.take(messages)
                progress(messages[-1].sequence, end)
        if self.audit is not None:
            await self.audit.finish(self.folding)

    async def take(self, messages: list[Message]) -> None:
        """Fold what comes next in the log."""
        for part in self.audit.parts(messages) if self.audit is not None else [messages]:
            if self.audit is not None:
                await self.audit.before(part[0].sequence, self.folding)
            await self.folding.take(part)
            folded = self._scratch.take_folded()
            if self.audit is not None:
                await self.audit.folded(folded)
        self._messages += len(messages)

    def verified(self, seconds: float) -> Verified:
        """What was found so far."""
        stands = self.folding.checkpoint
        verified = Verified(
            epoch=self._epoch,
            revision=stands.sequence,
            head=stands.head.hex(),
            messages=self._messages,
            rejected=self.folding.rejected,
            seconds=round(seconds, 3),
            rate=round(self._messages / seconds, 1) if self._messages else 0.0,
            compared=(),
            not_compared=(),
            differences=tuple(self.audit.differences) if self.audit is not None else (),
        )
        if self.audit is not None:
            verified = _add(verified, Compared(part="catalog", what=self.audit.told))
        if self._kept is not None:
            verified = _add(
                verified, Compared(part="log", what=self._kept.told), found=self._kept.difference(stands.sequence)
            )
        return verified

    def _committed(self, batch: Batch) -> None:
        if self._kept is not None:
            self._kept.take(batch.links)
        for version in batch.versions:
            if version.after is not None:
                self.departed.pop(version.key, None)
            elif self.to_be_told is None or version.key in self.to_be_told:
                gone = departed(version.key, version.term, version.sequence, version.cause, self._epoch)
                self.departed[version.key] = gone


async def _own_events(ledger: Ledger) -> Source:
    """The messages of the log as a catalog holds them: its events and what was set aside, in their order."""
    rejected = (row async for chunk in ledger.table("rejected") for row in chunk)
    aside = await anext(rejected, None)
    async for chunk in ledger.table("events"):
        messages: list[Message] = []
        for sequence, _, at, namespace, service, instance, *_, payload, _ in chunk:
            while aside is not None and aside[0] < sequence:
                messages.append(_set_aside(ledger, aside))
                aside = await anext(rejected, None)
            subject = subjects.event(Key(namespace, service, instance))
            messages.append(Message(subject, _bytes(payload), sequence, ledger.seconds(at)))
        yield messages
    while aside is not None:
        yield [_set_aside(ledger, aside)]
        aside = await anext(rejected, None)


def _set_aside(ledger: Ledger, row: Row) -> Message:
    sequence, at, subject, payload, *_ = row
    return Message(str(subject), _bytes(payload), sequence, ledger.seconds(at))


def _bytes(payload: object) -> bytes:
    """What stands in a column of bytes; an edit may have put anything into one of SQLite's."""
    return payload if isinstance(payload, bytes) else str(payload).encode()


# ---- the bus


class _Bus:
    """What is told on the bus of the fold, held against it once the log was read to its end."""

    def __init__(self, broker: Broker, log: Log, reading: _Reading) -> None:
        self._broker, self._log, self._reading = broker, log, reading

    async def begin(self) -> None:
        """See of whom it is told: how they left, if they did, is looked for in the log."""
        if await self._broker.stream_info(TOPOLOGY) is not None:
            self._reading.to_be_told = set(await look_at_topology(self._broker))

    async def check_same(self) -> None:
        """After a connection was lost: is it still the same log? Raises LogChanged."""
        now, at = await look_at_log(self._broker), self._reading.folding.checkpoint
        if now.notes.epoch != self._log.notes.epoch:
            raise LogChanged(f"the log is of epoch {now.notes.epoch} now, it was {self._log.notes.epoch}", WRONG_LOG)
        if at.sequence <= now.notes.trimmed:
            return
        raw = await self._broker.message_at(EVENTS, at.sequence)
        found = Message(raw.subject or "", raw.data or b"", at.sequence, 0.0) if raw is not None else None
        if found is None or identify(found) != at.event_id:
            raise LogChanged(f"the log holds another event at {at.sequence} than it did", WRONG_LOG)

    async def compare(self, verified: Verified, cache: Look | None) -> Verified:
        """Compare the topology, and a live cache."""
        self._reading.to_be_told = None
        if await self._broker.stream_info(TOPOLOGY) is None:
            verified = _add(verified, not_compared=f"the topology: there is no stream {TOPOLOGY}")
        else:
            verified = _add(
                verified, Compared(part="topology", what="the topology"), found=await settled(self._topology)
            )
        if cache is None:
            return verified
        shown = await cache()
        told = f"a cache of namespace {shown.namespace}"
        if shown.unusable:
            return _add(verified, not_compared=f"{told}: {shown.unusable}")
        found = await settled(partial(self._cache, cache))
        return _add(verified, Compared(part="cache", what=told), found=found)

    async def _topology(self) -> dict[Place, Difference]:
        seen = await look_at_topology(self._broker)
        return compare_states("topology", seen, await self._expected(), self._reading.departed)

    async def _cache(self, cache: Look) -> dict[Place, Difference]:
        shown = await cache()
        expected = await self._expected()
        there = {key: instance for key, instance in expected.items() if key.namespace == shown.namespace}
        return compare_states("cache", {one.key: one for one in shown.instances}, there, {})

    async def _expected(self) -> dict[Key, Instance]:
        """Who is there, once the fold has come to what is the log's end now."""
        reading, epoch = self._reading, self._log.notes.epoch
        end = (await look_at_log(self._broker)).end
        after = reading.folding.checkpoint.sequence
        async with aclosing(read_log(self._broker, after, end, self.check_same)) as source:
            async for messages in source:
                await reading.take(messages)
        return {key: instance_of(record, epoch) for key, record in reading.folding.records.items()}
