"""Folding batches into a store: whole where it takes them, else in halves down to the one message that it refuses.

What cannot be decoded or stored is set aside raw, with its reason, and the log goes on. While the store is away the log
waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from adsum.events.backoff import backoff
from adsum.events.garbage import PausedGC
from adsum.events.names import Key
from adsum.events.outage import Outage
from adsum.events.reader import Message

from .catalog import REMEDY, Checkpoint, Store
from .errors import CatalogRefused, CatalogUnavailable, CheckpointMoved
from .failpoints import passed
from .fold import Batch, fold_batch, identify
from .record import Record

__all__ = ["Folding"]

log = logging.getLogger("adsum.writer")


class Folding:
    """`records` are the live ones at `checkpoint`. `on_commit` hears of each batch."""

    def __init__(self, store: Store, epoch: str, on_commit: Callable[[Batch], None]) -> None:
        self._kept, self._epoch, self._on_commit = store, epoch, on_commit
        self.records: dict[Key, Record] = {}
        self.checkpoint = Checkpoint(epoch, 0, "")
        self.rejected = 0
        self.outage = Outage(log, f"catalog {store.name}", REMEDY)

    async def take(self, messages: Sequence[Message], folded: Collection[str] = ()) -> None:
        """Fold the next messages of the log, at least one, and store what became of them. Raises CheckpointMoved."""
        try:
            with PausedGC():
                batch = fold_batch(self.records, messages, folded, head=self.checkpoint.head)
            await self._store(batch)
            return
        except CatalogRefused as error:
            refusal = error
        known = await self._known(messages)
        if known - set(folded):
            await self.take(messages, known)
        elif len(messages) > 1:
            half = len(messages) // 2
            await self.take(messages[:half], known)
            await self.take(messages[half:], known)
        else:
            refused = {messages[0].sequence: f"the catalog refuses it: {refusal}"}
            await self._store(fold_batch(self.records, messages, folded, refused, self.checkpoint.head))

    async def _store(self, batch: Batch) -> None:
        """Store a batch, waiting for a database that is away."""
        passed("after fold")
        delays = backoff()
        while True:
            try:
                self.checkpoint = await self._store_once(batch)
                break
            except CatalogUnavailable as error:
                self.outage.goes_on(error)
                await asyncio.sleep(next(delays))
        passed("after commit")
        self.outage.over()
        self._apply(batch)

    async def _store_once(self, batch: Batch) -> Checkpoint:
        """A commit whose acknowledgement was lost on the way back was a commit: then the retry finds its own mark."""
        try:
            return await self._kept.store(self.checkpoint, batch)
        except CheckpointMoved:
            stored = Checkpoint(self.checkpoint.epoch, batch.last.sequence, batch.last_id, batch.head)
            if await self._kept.checkpoint() != stored:
                raise
            return stored

    async def _known(self, messages: Sequence[Message]) -> set[str]:
        delays = backoff()
        while True:
            try:
                return await self._kept.folded([identify(message) for message in messages])
            except CatalogUnavailable as error:
                self.outage.goes_on(error)
                await asyncio.sleep(next(delays))

    def _apply(self, batch: Batch) -> None:
        for key, record in batch.changed.items():
            if record is None:
                self.records.pop(key, None)
            else:
                self.records[key] = record
        self.rejected += len(batch.rejected)
        self._on_commit(batch)
