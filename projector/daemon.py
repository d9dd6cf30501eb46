"""The daemon: puts the parts together, starts them in order and ends them in the reverse order.

beats and ticks ── always
leader ─────────── always: seeks, keeps and gives back the lease
answering ──────── always: answers what is asked about the past
projection ─────── always on a catalog of its own; while leading on a shared one
announcer, reaper, prober, marks ── while leading, once the fold has reached what was the log's end
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.epochs import announced_epochs
from adsum.events.errors import AdsumError, BrokerUnavailable, InvalidValue, StreamMissing
from adsum.events.outage import Outage
from adsum.events.settings import BrokerSettings
from adsum.events.signals import Tick
from adsum.events.streams import EVENTS, ensure_streams, renew_epoch

from .answering import Answering
from .beats import BeatReader
from .catalog import REMEDY, Catalog
from .databases import open_catalog
from .embedded import EmbeddedBroker
from .errors import CatalogUnavailable, Refusal, first_error
from .folder import daemon_id, data_folder
from .leader import RESIGNED, Leader
from .leading import Term
from .projection import Projection
from .sqlite import SQLiteCatalog

__all__ = ["Daemon", "Options", "Ready", "check_replicas", "serve"]

CONNECT_LIMIT = 10.0
UNFIT_AFTER = 10.0
"""Seconds for which a catalog may refuse to take anything before its daemon gives the lease back."""

PAUSES = 1.0, 10.0
"""Seconds, at first and at most, before a daemon whose term of office failed may begin another."""
HELD_TOLD = 20

log = logging.getLogger("adsum.daemon")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `adsumd` was asked for. `nats` None: an embedded broker on `host`:`port`; `dsn` None: SQLite in `data`.

    `probes`: look for oneself whether somebody is unreachable whom callers report. `new_epoch`: the log is another one
    than before; say so to all who knew it. `broker_only`: run only the embedded broker, while something is done to the
    log that no adsumd may follow.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = 4222
    nats: BrokerSettings | None = None
    replicas: int = 1
    dsn: str | None = None
    new_epoch: bool = False
    probes: bool = True
    broker_only: bool = False


def check_replicas(field: str, replicas: int, nats: BrokerSettings | None) -> int:
    """Give `replicas` back if each stream can have so many copies there, else raise InvalidValue."""
    if replicas not in (1, 3, 5):
        raise InvalidValue(field, replicas, "must be 1, 3 or 5")
    if nats is None and replicas != 1:
        raise InvalidValue(field, replicas, "the embedded broker is one server: must be 1")
    return replicas


class Ready(NamedTuple):
    """A daemon follows the log. `nats` is its broker, `revision` how far its catalog is folded; None: it has none."""

    nats: str
    catalog: str = "none"
    revision: int | None = None

    def __str__(self) -> str:
        folded = f" revision={self.revision}" if self.revision is not None else ""
        return f"adsumd ready: nats={self.nats} catalog={self.catalog}{folded}"


async def serve(options: Options, ready: Callable[[Ready], None]) -> None:
    """Run a daemon until cancelled. `ready` is called once it follows the log. Raises Refusal, AdsumError."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(data_folder(options.data))
        settings, embedded = options.nats, None
        if settings is None:
            embedded = await stack.enter_async_context(_embedded(options))
            if options.broker_only:
                ready(Ready(embedded.url))
                await embedded.keep()
            settings = BrokerSettings(url=embedded.url)
        broker = Broker.open(settings, "adsumd")
        stack.push_async_callback(broker.close)
        await broker.ready(CONNECT_LIMIT)
        catalog = open_catalog(options.dsn) if options.dsn else SQLiteCatalog(folder / "catalog.db")
        stack.push_async_callback(catalog.close)
        await catalog.open()
        epoch = await _streams(broker, catalog, options.replicas)
        if options.new_epoch:
            epoch = await _begin_epoch(broker, catalog)
        home = daemon_id(folder)
        beside = (embedded.outage,) if embedded is not None else ()
        daemon = Daemon(broker, catalog, epoch, home, settings, beside, probes=options.probes)
        async with asyncio.TaskGroup() as tasks:
            if embedded is not None:
                tasks.create_task(embedded.keep(), name="embedded broker")
            following = daemon.run(lambda revision: ready(Ready(broker.url, catalog.name, revision)))
            tasks.create_task(following, name="daemon")


class Daemon:
    """One daemon on one broker and one catalog. It is the Candidate of its Leader. `home`: see Leader.

    `beside` is what may fail beside it for a while and is to be told in its ticks too.
    """

    def __init__(
        self,
        broker: Broker,
        catalog: Catalog,
        epoch: str,
        home: str,
        settings: BrokerSettings,
        beside: tuple[Outage, ...] = (),
        *,
        probes: bool = True,
    ) -> None:
        self._broker, self._catalog, self._epoch, self._settings = broker, catalog, epoch, settings
        self._beside, self._probes = beside, probes
        self._term: Term | None = None
        self._away = Outage(log, f"not fit to lead: catalog {catalog.name}", REMEDY)
        self._again_at, self._pauses = -math.inf, backoff(*PAUSES)
        self.beats = BeatReader(broker, self._ticked)
        self.projection = Projection(broker, catalog, epoch, self.beats)
        self.leader = Leader(broker, home, self.beats, self)
        self.answering = Answering(broker, catalog, self.leader.me, self.leader.elected.is_set)

    async def run(self, ready: Callable[[int], None]) -> None:
        """Follow, seek the lease, lead while it is held; until cancelled. `ready` gets the revision once following."""
        async with asyncio.TaskGroup() as tasks:
            if not self._catalog.shared:
                await self.projection.take_up()
                tasks.create_task(self.projection.run(), name="projection")
                await self.projection.writer.reached(await self.projection.writer.log_end())
            tasks.create_task(self.beats.run(), name="beats")
            tasks.create_task(self.leader.run(), name="leader")
            tasks.create_task(self._lead_when_elected(), name="terms")
            tasks.create_task(self.answering.run(), name="answering")
            await self.answering.tried()
            ready(await self._revision())

    def fit(self) -> bool:
        """Whether the catalog works."""
        return self.projection.refusal.lasted < UNFIT_AFTER

    async def ready(self) -> bool:
        """Whether the fold stands at the log's end; a shared catalog, which only the leader folds, has to answer.

        That it takes writes too shows only once it is led on.
        """
        if time.monotonic() < self._again_at:
            return False
        if not self._catalog.shared:
            writer = self.projection.writer
            return writer.checkpoint.sequence >= await writer.log_end()
        try:
            await self._catalog.checkpoint()
        except CatalogUnavailable as error:
            self._away.goes_on(error)
            return False
        return True

    def report(self, tick: Tick) -> Tick:
        """The tick with what this daemon knows of itself."""
        held = sorted("/".join(service) for service in self.projection.guard.holding)
        told = self._term.report(tick) if self._term is not None else tick
        return msgspec.structs.replace(
            told,
            revision=self.projection.writer.checkpoint.sequence,
            announced=self.projection.announced,
            held=tuple(held[:HELD_TOLD]),
            rejected=self.projection.writer.rejected,
            troubles=tuple(trouble for outage in self._outages() if (trouble := outage.trouble) is not None),
        )

    def _outages(self) -> tuple[Outage, ...]:
        """All that may fail for a while; what concerns the catalog first."""
        leading = self._term.outages if self._term is not None else ()
        own = (self._away, *self._beside, self.beats.outage, *leading, self.leader.outage, self.answering.outage)
        return (*self.projection.outages, *own)

    def _ticked(self) -> None:
        self.projection.ticked()
        if self._term is not None:
            self._term.ticked()
        if self._well_led():
            self._again_at, self._pauses = -math.inf, backoff(*PAUSES)
            self._away.over()

    def _well_led(self) -> bool:
        """Whether this daemon's term works, or another one leads without trouble."""
        if self._term is not None:
            return self._term.works
        tick = self.beats.last_tick.tick if self.beats.last_tick is not None else None
        return tick is not None and tick.leader not in (RESIGNED, self.leader.me) and not tick.troubles

    async def _revision(self) -> int:
        checkpoint = await self._catalog.checkpoint()
        return checkpoint.sequence if checkpoint else 0

    async def _lead_when_elected(self) -> None:
        while True:
            await self.leader.elected.wait()
            shared = self._catalog.shared
            self._term = Term(
                self._broker,
                self.projection,
                self._epoch,
                self.leader,
                self._verdict_connection,
                take_up=shared,
                probes=self._probes,
            )
            try:
                await self._while_elected(self._term)
            finally:
                self._term = None
            if shared:  # what this term read is not the next one's; what its catalog did not take is told by `_away`
                if self.projection.refusal.lasted:
                    self._put_off(self.projection.refusal.reason, self.projection.refusal.lasted)
                self.projection = Projection(self._broker, self._catalog, self._epoch, self.beats)

    async def _while_elected(self, term: Term) -> None:
        """Run a term until the lease is lost, or it fails: then give the lease back. Only what is final is raised."""
        office = asyncio.create_task(term.run(), name="term")
        lease = asyncio.create_task(self.leader.lost.wait(), name="lease")
        try:
            await asyncio.wait([office, lease], return_when=asyncio.FIRST_COMPLETED)
        finally:
            office.cancel()
            lease.cancel()
            await asyncio.wait([office, lease])
        failure = None if office.cancelled() else office.exception()
        if failure is None:
            return
        reason = first_error(failure)
        if isinstance(reason, Refusal | StreamMissing) or not isinstance(reason, AdsumError):
            raise failure
        log.warning("leading no more: %s", reason)
        self._put_off(reason if isinstance(reason, CatalogUnavailable) else "")
        self.leader.resign()

    def _put_off(self, refusal: object, lasted: float = 0.0) -> None:
        """A term failed: the next one is not begun at once, and what the catalog refused outlives it."""
        self._again_at = time.monotonic() + next(self._pauses)
        if refusal:
            self._away.goes_on(refusal, lasted)

    def _verdict_connection(self) -> Broker:
        return Broker.open(self._settings, "adsumd verdicts", keep_unsent=False)


@asynccontextmanager
async def _embedded(options: Options) -> AsyncIterator[EmbeddedBroker]:
    """The embedded broker for as long as the block runs."""
    embedded = await EmbeddedBroker.start(options.data, options.host, options.port)
    try:
        yield embedded
    finally:
        await embedded.stop()


async def _streams(broker: Broker, catalog: Catalog, replicas: int) -> str:
    """The epoch of the log, the streams created or compared; a cluster that just started may not answer yet."""
    deadline = asyncio.get_running_loop().time() + CONNECT_LIMIT
    delays = backoff(most=1.0)
    while True:
        try:
            return await ensure_streams(broker, replicas, await _epochs_seen(broker, catalog))
        except BrokerUnavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(next(delays))


async def _begin_epoch(broker: Broker, catalog: Catalog) -> str:
    """Give the log a new epoch; for a catalog that folded nothing, since any other is refused in it."""
    checkpoint = await catalog.checkpoint()
    if checkpoint is not None and checkpoint.sequence:
        what = f"a new epoch is for an empty catalog, and {catalog.name} stands at {checkpoint.sequence}"
        raise Refusal(what, "Leave --new-epoch away, or give it an empty database (--catalog).")
    epoch = await renew_epoch(broker, await announced_epochs(broker))
    log.warning("the log has a new epoch, %s: services register again, caches are read anew", epoch)
    return epoch


async def _epochs_seen(broker: Broker, catalog: Catalog) -> tuple[str, ...]:
    """Every epoch a new log's must be above: the catalog's, and those that topology messages still bear."""
    checkpoint = await catalog.checkpoint()
    seen = {checkpoint.epoch} if checkpoint else set[str]()
    if await broker.stream_info(EVENTS) is None:
        seen |= await announced_epochs(broker)
    return tuple(seen)
