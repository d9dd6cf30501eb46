"""Rebuilding a catalog: the log up to its end as it is now, through the writer's own fold, into a database of its own.

It may be interrupted at any moment and goes on from the checkpoint. It never writes into a catalog that a leader
writes: a SQLite file is locked by whoever has it, and in PostgreSQL a catalog that an adsumd has ever taken (its
generation is above 0) is refused, before each batch anew. Should one take it between that look and the commit, the
checkpoint decides, as between two writers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing

from adsum.events.broker import Broker
from adsum.events.errors import InvalidValue
from adsum.events.tools import Progress, Rebuilt

from .catalog import Catalog, Checkpoint
from .databases import open_catalog
from .errors import CatalogInUse, CheckpointMoved, LogChanged, Refusal
from .source import Log, check_base, look_at_log, read_all
from .writer import Writer

__all__ = ["rebuild"]

OTHER = "Name an empty database, or a new file: a rebuild adds nothing to what is another log's."


async def rebuild(broker: Broker, dsn: str, *, until: int | None, base: Sequence[str], progress: Progress) -> Rebuilt:
    """See `adsum.events.tools.Rebuild`."""
    catalog = open_catalog(dsn)
    log = await look_at_log(broker)
    if until is not None and not 0 < until <= log.end:
        raise InvalidValue("until", f"@{until}", f"must be a revision of the log, which ends at {log.end}")
    await check_base(base, log)
    try:
        await catalog.open()
        return await _Rebuilding(broker, catalog, log, base).run(until or log.end, progress)
    finally:
        await catalog.close()


class _Rebuilding:
    def __init__(self, broker: Broker, catalog: Catalog, log: Log, base: Sequence[str]) -> None:
        self._broker, self._catalog, self._log, self._base = broker, catalog, log, base
        self._writer = Writer(broker, catalog, log.notes.epoch, lambda _: None)
        self._writer.removed = log.notes.trimmed > 0

    async def run(self, end: int, progress: Progress) -> Rebuilt:
        await self._check_free()
        since = (await self._take_up(end)).sequence
        began, events, writer = time.monotonic(), 0, self._writer
        async with AsyncExitStack() as block:
            if end - since > since:
                await block.enter_async_context(self._catalog.bulk())
            reading = read_all(self._broker, self._log, self._base, since, end, self._writer.verify)
            async for messages in await block.enter_async_context(aclosing(reading)):
                await self._check_free()
                try:
                    await writer.take(messages)
                except CheckpointMoved:
                    raise self._taken() from None
                events += len(messages)
                progress(writer.checkpoint.sequence - since, end - since)
        seconds = time.monotonic() - began
        return Rebuilt(
            catalog=self._catalog.name,
            epoch=writer.checkpoint.epoch,
            since=since,
            revision=writer.checkpoint.sequence,
            head=writer.checkpoint.head.hex(),
            events=events,
            rejected=writer.rejected,
            seconds=round(seconds, 3),
            rate=round(events / seconds, 1) if events else 0.0,
        )

    async def _take_up(self, end: int) -> Checkpoint:
        """Go on from where the catalog stands. Raises Refusal where that is not a part of this log."""
        try:
            await self._writer.load()
        except LogChanged as changed:
            raise Refusal(f"{self._catalog.name} is not a part of this log: {changed.what}", OTHER) from None
        stands = self._writer.checkpoint
        if stands.sequence > end:
            raise Refusal(f"the catalog {self._catalog.name} stands at revision {stands.sequence} already", OTHER)
        return stands

    async def _check_free(self) -> None:
        if not self._catalog.shared:
            return
        ((generation, *_),) = await self._catalog.rows("leadership")
        if generation:
            raise self._taken()

    def _taken(self) -> CatalogInUse:
        what = f"the catalog {self._catalog.name} is, or was, that of an adsumd, which folds the log into it by itself"
        return CatalogInUse(what, "Name an empty database.")
