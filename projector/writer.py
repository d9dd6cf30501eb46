"""The writer: reads the log from the catalog's checkpoint on, folds a batch, stores it in one transaction.

The checkpoint moves by compare-and-set, so two writers cannot both apply an event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from nats.js.api import StreamInfo

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable
from adsum.events.following import follow
from adsum.events.notes import notes_of
from adsum.events.outage import BROKER_REMEDY, Outage
from adsum.events.reader import Message
from adsum.events.streams import EVENTS, alone, epoch_of_log

from .catalog import Catalog, Checkpoint
from .errors import LogChanged
from .fold import Batch, identify
from .folding import Folding

__all__ = ["Writer"]

LOOKS, LOOK_AGAIN = 4, 1.0
HANGS_AFTER = 2.0
"""Seconds that the catalog may take for what was read before that counts as standing still."""
_OTHER_EPOCH = (
    "If the log is right (it was imported, or given a new epoch), let the catalog be built anew from it: start adsumd "
    "with an empty database (--catalog). If the catalog is right, put the log's data back."
)
_OTHER_LOG = (
    "If the log is right, let the catalog be built anew from it: start adsumd once with --new-epoch and an empty "
    "database (--catalog). If the catalog is right, put the log's data back."
)
_TRIMMED = (
    "A catalog of it needs the exports of what was removed as its base: `adsum rebuild --into DSN --base FILE`, then "
    "start adsumd with that catalog (--catalog)."
)

log = logging.getLogger("adsum.writer")


class Writer(Folding):
    """Follows the log into a catalog. `removed`: what was removed from the log is folded from elsewhere."""

    removed = False

    def __init__(self, broker: Broker, catalog: Catalog, epoch: str, on_commit: Callable[[Batch], None]) -> None:
        super().__init__(catalog, epoch, on_commit)
        self._broker, self._catalog = broker, catalog
        self.reading = Outage(log, "reading the log", BROKER_REMEDY)
        self._moved = asyncio.Event()
        self._taking_since: float | None = None

    @property
    def behind(self) -> bool:
        """Whether it stands behind the log and may stay there: log or catalog fail, or the catalog does not answer."""
        hangs = self._taking_since is not None and time.monotonic() - self._taking_since > HANGS_AFTER
        return hangs or self.reading.lasted > 0 or self.outage.lasted > 0

    async def load(self) -> None:
        """Take up what the catalog holds. Raises LogChanged if it was folded from another log, CatalogUnavailable."""
        checkpoint = await self._catalog.checkpoint()
        if checkpoint is None or (checkpoint.sequence == 0 and checkpoint.epoch != self._epoch):
            checkpoint = await self._catalog.begin(self._epoch)
        self.checkpoint = checkpoint
        await self.verify()
        self.records = {record.key: record for record in await self._catalog.records()}
        self.rejected = await self._catalog.set_aside()

    async def run(self) -> None:
        """Follow the log until cancelled. Raises LogChanged, CheckpointMoved."""
        await follow(self._broker, EVENTS, self._read, outage=self.reading, before=self._begin)

    async def _begin(self) -> int:
        await self.verify()
        return self.checkpoint.sequence + 1

    async def _read(self, messages: Sequence[Message]) -> None:
        if messages:
            await self._check_gaps(messages)
            self._taking_since = time.monotonic()
            try:
                await self.take(messages)
            finally:
                self._taking_since = None

    async def _check_gaps(self, messages: Sequence[Message]) -> None:
        """Raise LogChanged if what is missing between two messages was removed before it was folded."""
        before = self.checkpoint.sequence
        if messages[-1].sequence - before == len(messages):
            return
        info = await self._broker.stream_info(EVENTS)
        trimmed = notes_of(info).trimmed if info is not None else 0
        for message in messages:
            if before + 1 < message.sequence and before < trimmed:
                raise LogChanged(f"the log was trimmed up to {trimmed}, the catalog stands at {before}", _TRIMMED)
            before = message.sequence

    async def verify(self) -> None:
        """Make sure that the log is the one the checkpoint was taken from. Raises LogChanged, BrokerUnavailable.

        A log put back from an older copy has the same creation time and may be longer again: only the event at the
        checkpoint tells. A cluster's new leader may not have applied all it holds yet: a log that seems too short is
        looked at a few times before it is refused, and never on the word of a server that leads no majority.
        """
        looks = 0
        while True:
            info = await self._broker.stream_info(EVENTS)
            missing = await self._missing(info)
            if missing is None:
                return
            looks += 1
            if looks == LOOKS:
                break
            await asyncio.sleep(LOOK_AGAIN)
        if info is not None and alone(info):  # this answer: the next one may come from another server
            raise BrokerUnavailable(f"{missing}, says a server that leads no majority of the cluster and may not know")
        raise LogChanged(missing, _OTHER_LOG)

    async def _missing(self, info: StreamInfo | None) -> str | None:
        """What the log lacks of what the catalog folded, None if nothing. Raises LogChanged for what is another."""
        at = self.checkpoint
        if info is None:
            return f"the log {EVENTS} is gone, the catalog stands at {at.sequence}"
        epoch = epoch_of_log(info)
        if epoch != at.epoch:
            what = f"the log is of epoch {epoch}, the catalog was folded from epoch {at.epoch}"
            if alone(info):
                return what
            raise LogChanged(what, _OTHER_EPOCH)
        notes = notes_of(info)
        if at.sequence < notes.trimmed:
            if self.removed:
                return None
            what = f"the log was trimmed up to {notes.trimmed}, the catalog stands at {at.sequence}"
            raise LogChanged(what, _TRIMMED)
        if at.sequence == notes.trimmed and at.head == notes.trimmed_head:
            return None
        if info.state.last_seq < at.sequence:
            return f"the log ends at {info.state.last_seq}, the catalog stands at {at.sequence}"
        return await self._missing_event(at) if at.sequence else None

    async def _missing_event(self, at: Checkpoint) -> str | None:
        """The same of the event at the checkpoint."""
        raw = await self._broker.message_at(EVENTS, at.sequence)
        if raw is None:
            return f"the log holds no event at {at.sequence}, where the catalog folded {at.event_id}"
        found = identify(Message(raw.subject or "", raw.data or b"", at.sequence, 0.0))
        if found != at.event_id:
            what = f"the log holds another event ({found}) at {at.sequence}, where the catalog folded {at.event_id}"
            raise LogChanged(what, _OTHER_LOG)
        return None

    async def reached(self, sequence: int) -> None:
        """Wait until the fold stands at `sequence` or beyond."""
        while self.checkpoint.sequence < sequence:
            self._moved.clear()
            await self._moved.wait()

    async def log_end(self) -> int:
        """The sequence of the log's last event now, at least the checkpoint's. Raises BrokerUnavailable, BrokerRefused.

        The last sequences of a log may hold nothing, where the disk was full: waiting for one would be for ever.
        """
        info = await self._broker.stream_info(EVENTS)
        end = info.state.last_seq if info else 0
        while end > self.checkpoint.sequence and await self._broker.message_at(EVENTS, end) is None:
            end -= 1
        return max(end, self.checkpoint.sequence)

    def _apply(self, batch: Batch) -> None:
        for rejected in batch.rejected:
            log.warning("event %d is set aside: %s", rejected.message.sequence, rejected.reason)
        super()._apply(batch)
        self._moved.set()
