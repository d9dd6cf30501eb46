"""Removing from the catalog what `adsum trim` removed from the log, as the log's own note says."""

from __future__ import annotations

import asyncio
import logging

from adsum.events.broker import Broker
from adsum.events.errors import BrokerRefused, BrokerUnavailable
from adsum.events.notes import notes_of
from adsum.events.streams import EVENTS

from .catalog import Catalog
from .errors import CatalogUnavailable
from .writer import Writer

__all__ = ["keep_trimmed"]

LOOK_EVERY = 5.0
"""Seconds between two looks at the note."""

log = logging.getLogger("adsum.retention")


async def keep_trimmed(broker: Broker, catalog: Catalog, writer: Writer) -> None:
    """Look at the note every few seconds and forget what is before it; until cancelled.

    Only the note counts, and only that of the log which the catalog was folded from. What fails is tried again.
    """
    forgotten = 0
    while True:
        try:
            trimmed = await _trimmed(broker, writer)
            if trimmed > forgotten:
                await _forget(catalog, trimmed)
                forgotten = trimmed
        except (BrokerUnavailable, BrokerRefused, CatalogUnavailable) as error:
            log.debug("not now: %s", error)  # writer and broker tell of it
        await asyncio.sleep(LOOK_EVERY)


async def _trimmed(broker: Broker, writer: Writer) -> int:
    """Up to where the log is trimmed; 0 for another log, or one that the catalog has not folded so far."""
    info = await broker.stream_info(EVENTS)
    notes = notes_of(info) if info is not None else None
    at = writer.checkpoint
    return notes.trimmed if notes is not None and notes.epoch == at.epoch and notes.trimmed <= at.sequence else 0


async def _forget(catalog: Catalog, through: int) -> None:
    if await catalog.forget(through):
        log.info("the log was trimmed up to %d: forgetting what is before", through)
        more = True
        while more:
            more = await catalog.forget(through)
