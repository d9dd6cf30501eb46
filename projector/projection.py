"""The projection: one daemon's view of the log and the heartbeats, and what it writes down of it.

A daemon with a catalog of its own keeps its projection going all the time and is warm when it comes to lead. On a
shared catalog only the leader has one, taken up from where its predecessor left the catalog.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from adsum.events.broker import Broker
from adsum.events.names import Key
from adsum.events.outage import Outage

from .beats import BeatReader
from .catalog import REMEDY, Catalog, Observations
from .errors import CatalogUnavailable, Fenced
from .fold import Batch
from .guard import Guard
from .hearing import Hearing
from .retention import keep_trimmed
from .writer import Writer

__all__ = ["Projection"]

FLUSH_INTERVAL = 1.0
"""Seconds after which clock and heard values are written down also when no tick was read."""
FLUSH_TOGETHER = 500
"""Heard values a transaction, so that no event waits long behind them."""
LAST_FLUSH_LIMIT = 3.0

log = logging.getLogger("adsum.projection")


class Projection:
    """Writer, observed clock, heard values and guard over one catalog. `flushed`: it was written down at least once."""

    def __init__(self, broker: Broker, catalog: Catalog, epoch: str, beats: BeatReader) -> None:
        self._broker, self.catalog, self.beats = broker, catalog, beats
        self.writer = Writer(broker, catalog, epoch, self._committed)
        self.guard = Guard()
        self.announced = 0
        self.flushed = False
        self.outage = Outage(log, f"writing down heartbeats in {catalog.name}", REMEDY)
        self._generation = 0
        self._terms: dict[Key, str] = {}
        self._listeners: tuple[Callable[[Batch], None], ...] = ()
        self._ticked = asyncio.Event()
        self._untidy = asyncio.Event()

    @property
    def refusal(self) -> Outage:
        """What tells for how long the catalog has not taken what it was given, and why."""
        return max(self.writer.outage, self.outage, key=lambda outage: outage.lasted)

    @property
    def outages(self) -> tuple[Outage, ...]:
        """All that may fail in it for a while."""
        return self.writer.outage, self.outage, self.writer.reading

    async def take_up(self) -> None:
        """Begin a generation and go on from what the catalog holds. Raises LogChanged, CatalogUnavailable."""
        self._generation = await self.catalog.take()
        await self.writer.load()
        observed = await self.catalog.observed()
        hearing = Hearing(observed.heard)
        self._terms = {record.key: record.term for record in self.writer.records.values()}
        for term in self._terms.values():
            hearing.begin(term, observed.clock)
        self.guard = Guard(observed.held)
        self.announced = observed.announced
        self.beats.resume(observed.clock, hearing)

    async def run(self) -> None:
        """Follow the log and write down what is heard, until cancelled. Raises LogChanged, CheckpointMoved, Fenced."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run(), name="writer")
            tasks.create_task(self._flush_for_ever(), name="flush")
            tasks.create_task(self._tidy_for_ever(), name="tidy")
            tasks.create_task(keep_trimmed(self._broker, self.catalog, self.writer), name="retention")

    def ticked(self) -> None:
        """A tick was read: the clock went on. It is written down, or who is killed every few seconds ages nobody."""
        self._ticked.set()

    def listen(self, *listeners: Callable[[Batch], None]) -> None:
        """Tell these, and nobody else, of every batch from now on."""
        self._listeners = listeners

    def _committed(self, batch: Batch) -> None:
        now = self.beats.clock.at(time.monotonic())
        for version in batch.versions:
            before = self._terms.pop(version.key, None)
            if before is not None and (version.after is None or version.term != before):
                self.beats.hearing.end(before)
            if version.after is not None:
                self._terms[version.key] = version.term
                self.beats.hearing.begin(version.term, now)
        for listener in self._listeners:
            listener(batch)
        if self.catalog.untidy:
            self._untidy.set()

    async def _tidy_for_ever(self) -> None:
        while True:
            await self._untidy.wait()
            self._untidy.clear()
            try:
                await self.catalog.tidy()
            except CatalogUnavailable as error:  # the next flush tells, which tidies too
                log.debug("tidying: %s", error)

    async def _flush_for_ever(self) -> None:
        try:
            while True:
                await self._next_tick()
                await self.flush()
        except asyncio.CancelledError:
            await self._flush_at_last()
            raise

    async def _next_tick(self) -> None:
        self._ticked.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_INTERVAL):
                await self._ticked.wait()

    async def _flush_at_last(self) -> None:
        try:
            async with asyncio.timeout(LAST_FLUSH_LIMIT):
                await self.flush()
        except TimeoutError:
            log.info("the last heartbeats were not written down: no answer in time")
        except Fenced as error:
            log.info("the last heartbeats were not written down: %s", error)

    async def flush(self) -> None:
        """Write down clock, heard values, holds. A database that is away gets them the next time. Raises Fenced."""
        heard, ended = self.beats.hearing.take_unwritten()
        try:
            while True:
                part, rest = heard[:FLUSH_TOGETHER], heard[FLUSH_TOGETHER:]
                clock, held = self.beats.clock.value, self.guard.held
                await self.catalog.observe(self._generation, Observations(clock, part, ended, held, self.announced))
                heard, ended = rest, []
                if not heard:
                    break
            await self.catalog.tidy()
            self.flushed = True
            self.outage.over()
        except CatalogUnavailable as error:
            self.beats.hearing.keep(heard, ended)
            self.outage.goes_on(error)
        except BaseException:  # cancelled in the middle: the flush at the end writes it down
            self.beats.hearing.keep(heard, ended)
            raise
