"""The daemon: puts the parts together, starts them in order and ends them in the reverse order.

beats and ticks ── always
leader ─────────── always: seeks, keeps and gives back the lease
projection ─────── always on a catalog of its own; while leading on a shared one
announcer, reaper, marks ── while leading, once the fold has reached what was the log's end
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.codec import decode_topology
from adsum.events.errors import BrokerUnavailable, Undecodable
from adsum.events.ids import new_id
from adsum.events.reader import StreamReader
from adsum.events.settings import BrokerSettings
from adsum.events.signals import Tick
from adsum.events.streams import EVENTS, TOPOLOGY, ensure_streams

from .announcer import Announcer
from .beats import BeatReader
from .catalog import Catalog
from .databases import open_catalog
from .embedded import EmbeddedBroker
from .errors import BrokerFailed, CatalogUnavailable, CheckpointMoved, Fenced, Refusal
from .leader import Leader
from .lock import FileLock
from .marks import mark_round
from .projection import Projection
from .reaper import Reaper

__all__ = ["Daemon", "Options", "serve"]

CONNECT_LIMIT = 10.0
UNFIT_AFTER = 10.0
"""Seconds for which a catalog may refuse to take anything before its daemon gives the lease back."""

log = logging.getLogger("adsum.daemon")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What `adsumd` was asked for. `nats` None: an embedded broker on `host`:`port`; `dsn` None: SQLite in `data`."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 4222
    nats: BrokerSettings | None = None
    replicas: int = 1
    dsn: str | None = None


class _SteppedDown(Exception):
    """The lease is lost: ends the tasks of a term."""


async def serve(options: Options, ready: Callable[[str], None]) -> None:
    """Run a daemon until cancelled. `ready` gets one line once it follows the log. Raises Refusal, AdsumError."""
    async with AsyncExitStack() as stack:
        settings, embedded = options.nats, None
        if settings is None:
            embedded = await stack.enter_async_context(_embedded(options))
            settings = BrokerSettings(url=embedded.url)
        broker = Broker.open(settings, "adsumd")
        stack.push_async_callback(broker.close)
        await broker.ready(CONNECT_LIMIT)
        catalog = open_catalog(options.dsn or f"sqlite:///{_folder(options.data) / 'catalog.db'}")
        stack.push_async_callback(catalog.close)
        await catalog.open()
        epoch = await _streams(broker, catalog, options.replicas)
        me = new_id() if catalog.shared else _own_id(_folder(options.data))
        daemon = Daemon(broker, catalog, epoch, me, settings)
        async with asyncio.TaskGroup() as tasks:
            if embedded is not None:
                tasks.create_task(_fail_with(embedded), name="embedded broker")
            tasks.create_task(daemon.run(lambda revision: ready(_ready_line(broker, catalog, revision))), name="daemon")


class Daemon:
    """One daemon on one broker and one catalog. It is the Candidate of its Leader."""

    def __init__(self, broker: Broker, catalog: Catalog, epoch: str, me: str, settings: BrokerSettings) -> None:
        self._broker, self._catalog, self._epoch, self._me, self._settings = broker, catalog, epoch, me, settings
        self._reaper: Reaper | None = None
        self.beats = BeatReader(broker, self._ticked)
        self.projection = Projection(broker, catalog, epoch, self.beats)
        self.leader = Leader(broker, me, self.beats, self)

    async def run(self, ready: Callable[[int], None]) -> None:
        """Follow, seek the lease, lead while it is held; until cancelled. `ready` gets the revision once following."""
        async with asyncio.TaskGroup() as tasks:
            if not self._catalog.shared:
                await self.projection.take_up()
                tasks.create_task(self.projection.run(), name="projection")
                await self.projection.writer.reached(await self.projection.writer.log_end())
            tasks.create_task(self.beats.run(), name="beats")
            tasks.create_task(self.leader.run(), name="leader")
            tasks.create_task(self._terms(), name="terms")
            ready(await self._revision())

    def fit(self) -> bool:
        """Whether the catalog works."""
        return self.projection.trouble < UNFIT_AFTER

    async def ready(self) -> bool:
        """Whether the fold stands at the log's end; a shared catalog, which only the leader folds, has to answer."""
        if not self._catalog.shared:
            writer = self.projection.writer
            return writer.checkpoint.sequence >= await writer.log_end()
        try:
            await self._catalog.checkpoint()
        except CatalogUnavailable as error:
            log.warning("not fit to lead: %s", error)
            return False
        return True

    def report(self, tick: Tick) -> Tick:
        """The tick with what this daemon knows of itself."""
        return msgspec.structs.replace(
            tick,
            revision=self.projection.writer.checkpoint.sequence,
            announced=self.projection.announced,
            held=tuple("/".join(service) for service in sorted(self.projection.guard.holding)),
        )

    def _ticked(self) -> None:
        if self._reaper is not None:
            self._reaper.ticked()

    async def _revision(self) -> int:
        checkpoint = await self._catalog.checkpoint()
        return checkpoint.sequence if checkpoint else 0

    async def _terms(self) -> None:
        while True:
            await self.leader.elected.wait()
            try:
                await self._lead()
            except* _SteppedDown:
                log.info("another daemon leads")
            except* (CheckpointMoved, Fenced, CatalogUnavailable) as ended:
                log.warning("leading no more: %s", ended.exceptions[0])
                await self.leader.resign()
            finally:
                self.projection.listen(None)
                self._reaper = None

    async def _lead(self) -> None:
        """One term of office: ends with an exception group, whatever the reason."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._until_lost(), name="term")
            if self._catalog.shared:
                await self.projection.take_up()
                tasks.create_task(self.projection.run(), name="projection")
            end = await self.projection.writer.log_end()
            await self.projection.writer.reached(end)
            announcer = Announcer(self._broker, self._catalog, self.projection.writer, self._epoch)
            self.projection.listen(announcer.committed)
            self._reaper = Reaper(
                self.projection.writer, self.beats, self.projection.guard, self._verdict_connection, self._me
            )
            tasks.create_task(announcer.run(), name="announcer")
            tasks.create_task(self._reaper.run(), name="reaper")
            tasks.create_task(self._mark(announcer), name="marks")

    async def _until_lost(self) -> None:
        await self.leader.lost.wait()
        raise _SteppedDown

    async def _mark(self, announcer: Announcer) -> None:
        round = 0
        while True:
            await announcer.complete.wait()
            self.projection.announced = announcer.revision
            round += 1
            await mark_round(self._broker, announcer.announced, round)

    def _verdict_connection(self) -> Broker:
        return Broker.open(self._settings, "adsumd verdicts", keep_unsent=False)


@asynccontextmanager
async def _embedded(options: Options) -> AsyncIterator[EmbeddedBroker]:
    """The embedded broker, with the data folder locked for as long as it runs."""
    lock = FileLock(_folder(options.data) / "lock", f"the data folder {options.data}")
    lock.acquire()
    try:
        embedded = await EmbeddedBroker.start(options.data, options.host, options.port)
        try:
            yield embedded
        finally:
            await embedded.stop()
    finally:
        lock.release()


async def _fail_with(embedded: EmbeddedBroker) -> None:
    code = await asyncio.shield(embedded.exited)
    raise BrokerFailed(f"the embedded nats-server ended by itself (exit code {code})", "Start adsumd again.")


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


async def _epochs_seen(broker: Broker, catalog: Catalog) -> tuple[str, ...]:
    """Every epoch a new log's must be above: the catalog's, and those that topology messages still bear."""
    checkpoint = await catalog.checkpoint()
    seen = {checkpoint.epoch} if checkpoint else set[str]()
    if await broker.stream_info(EVENTS) is None and await broker.stream_info(TOPOLOGY) is not None:
        async with StreamReader(broker, TOPOLOGY) as reader:
            while messages := await reader.to_end():
                for message in messages:
                    try:
                        seen.add(decode_topology(message.data).epoch)
                    except Undecodable:
                        continue
    return tuple(seen)


def _folder(data: Path) -> Path:
    try:
        data.mkdir(parents=True, exist_ok=True)
        probe = data / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Refusal(
            f"the data folder {data} cannot be written: {error.strerror}", "Name another with --data DIR."
        ) from None
    return data


def _own_id(data: Path) -> str:
    """The data folder's id: whoever holds its lock is the daemon of before, and need not wait for its own lease."""
    file = data / "daemon-id"
    if not file.exists():
        file.write_text(f"{socket.gethostname()}-{new_id()}\n")
    return file.read_text().strip()


def _ready_line(broker: Broker, catalog: Catalog, revision: int) -> str:
    return f"adsumd ready: nats={broker.url} catalog={catalog.name} revision={revision}"
