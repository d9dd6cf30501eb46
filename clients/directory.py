"""A directory: who is there, in this process's own memory. A lookup never leaves the process."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Literal, TypeAlias

from adsum.events import subjects
from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.errors import BrokerRefused, BrokerUnavailable, InvalidValue, StreamMismatch
from adsum.events.outage import Outage
from adsum.events.reader import ReaderLost
from adsum.events.signals import Instance, NamespaceMark, ServiceMark, Topology

from .block import tasks_of_block
from .cache import Change
from .census import Census
from .changes import Changes, seen_with
from .choosing import Outliers, Policy, RoundRobin, Selection
from .choosing.filters import Filters
from .errors import NotLoaded
from .loading import Loading
from .marks import Marks
from .notice import Notice, connection, woken
from .subscribing import Leave, Subscriptions

__all__ = ["Directory", "DirectoryState"]

DirectoryState: TypeAlias = Literal["loading", "live", "stale"]
STALE_AFTER = 7.0
"""Seconds without proof after which a directory says so: three rounds of marks and a little."""
SPREAD = 0.5
"""Seconds over which those who lost the same connection come back."""

LOOK_INTERVAL = 5.0
"""Seconds between two looks at whether it is still proven, while it is not."""
_REMEDY = "look at the broker and at adsumd (`adsum status`); till then it answers with the last that it knew"

log = logging.getLogger("adsum.directory")


class Directory:
    """An async context manager, made by `Registry.directory`.

    Entering waits at most `wait` seconds for the first load; then the block runs all the same. Reads are plain calls.
    They raise NotLoaded while `state` is "loading", since an empty answer would look like nobody is there; they
    answer with the last that was known while it is "stale".
    """

    def __init__(
        self,
        broker: Broker,
        marks: Marks,
        subscriptions: Subscriptions,
        loading: Loading,
        namespace: str,
        services: tuple[str, ...],
        *,
        capability: str | None,
        poll_interval: float,
        wait: float,
        outliers: Outliers,
    ) -> None:
        self.namespace, self.services, self.capability = namespace, services, capability
        self._broker, self._marks, self._subscriptions, self._loading = broker, marks, subscriptions, loading
        self._poll_interval, self._wait, self._outliers = poll_interval, wait, outliers
        self._census = Census(services)
        self._clock = asyncio.get_running_loop().time
        self._joined: dict[str, Leave] = {}
        self._readers: set[weakref.ref[Changes]] = set()  # to go through a WeakSet costs more than all else of a change
        self._memo: dict[tuple[str | None, bool], tuple[Instance, ...]] = {}
        self._wake, self._anew = asyncio.Event(), asyncio.Event()
        self._notice = Notice()
        self._spreads = _spreads()
        self._loaded_at = -math.inf
        self._outage = Outage(log, str(self), _REMEDY)
        self._unproven = Outage(log, f"{self} is stale", _REMEDY)
        self._following: asyncio.Task[None] | None = None
        self._stack: AsyncExitStack | None = None

    def __str__(self) -> str:
        what = f"{self.namespace}/{','.join(self.services) or '*'}"
        return f"directory of {what}" + (f" with {self.capability}" if self.capability else "")

    # ---- reading

    @property
    def state(self) -> DirectoryState:
        """loading: nothing is known yet. live: proven complete within the last 7 s. stale: the last that was known.

        Being loaded counts as proof, so that a start is fast: what was loaded from a topology that is not whole (just
        after a restore, say) is live until no mark proved it for 7 s. Marks say within two seconds what is missing.
        """
        if not self._census.loaded:
            return "loading"
        return "live" if self._broker.connected and self.age <= STALE_AFTER else "stale"

    @property
    def age(self) -> float:
        """Seconds since it was last proven complete (by a mark that matched, or by being loaded); inf before."""
        return self._clock() - self._census.proven_at

    def instances(self, service: str | None = None, *, routable: bool = False) -> tuple[Instance, ...]:
        """Who is there, in no particular order: of all services followed or of one; `routable`: fit to be called.

        The same tuple until something changes. Raises NotLoaded, InvalidValue for a service that is not followed.
        """
        self._check_followed(service)
        self._check_loaded()
        memo = self._memo.get((service, routable))
        if memo is None:
            found = self._present(service)
            memo = tuple(instance for instance in found if instance.routable) if routable else tuple(found)
            self._memo[service, routable] = memo
        return memo

    def get(self, service: str, id: str) -> Instance | None:
        """One instance, None if it is not there. Raises NotLoaded, InvalidValue for a service that is not followed."""
        self._check_followed(service)
        self._check_loaded()
        cache = self._census.shown(service)
        instance = cache.present.get(id) if cache is not None else None
        return instance if instance is not None and self._visible(instance) else None

    def __len__(self) -> int:
        return len(self.instances())

    def select(
        self,
        service: str | None = None,
        *,
        policy: Policy | None = None,
        zone: str | None = None,
        version: str | None = None,
        metadata: Mapping[str, str] | None = None,
        endpoint: str | None = None,
        protocol: str | None = None,
        fail_open: bool = False,
        panic: float = 0.5,
        outliers: Outliers | None = None,
    ) -> Selection:
        """Choose among those that are shown, of all services followed or of one: `select().pick()`. Make it once.

        `policy`: round robin unless given. Only those in `zone`, of `version` (a text, or a range such as ">=1.4,<2":
        see `choosing.versions`), with all of `metadata`, with an endpoint named `endpoint` that speaks `protocol`.
        `fail_open`, `panic`: see Selection. `outliers`: what the calls tell, by default the registry's, which all of
        its selections share. Raises InvalidValue; it may be made before anything is loaded.
        """
        self._check_followed(service)
        filters = Filters(zone=zone, version=version, metadata=metadata, endpoint=endpoint, protocol=protocol)
        return Selection(
            partial(self.instances, service),
            f"{self.namespace}/{service}" if service is not None else str(self).removeprefix("directory of "),
            filters,
            RoundRobin() if policy is None else policy,
            self._outliers if outliers is None else outliers,
            fail_open=fail_open,
            panic=panic,
        )

    def changes(self, *, initial: bool = True) -> Changes:
        """An async iterator of differences, each reader its own; it ends when the block is left.

        `initial`: begin with everybody who is there as "joined". While it is loading nothing comes.
        """
        present = self._present(None) if initial and self._census.loaded else ()
        reader = Changes(present, initial=initial)
        self._readers.add(weakref.ref(reader, self._readers.discard))
        return reader

    async def loaded(self, timeout: float | None = None) -> bool:
        """Wait until it is loaded, at most `timeout` seconds; whether it is."""
        return await self._notice.until(lambda: self._census.loaded, timeout)

    def _check_followed(self, service: str | None) -> None:
        if service is not None and self.services and service not in self.services:
            raise InvalidValue("service", service, f"is not followed by this {self}", self.services[0])

    def _check_loaded(self) -> None:
        if not self._census.loaded:
            raise NotLoaded(str(self).removeprefix("directory of "))

    def _present(self, service: str | None) -> Iterator[Instance]:
        services = self._census.followed if service is None else (service,)
        for cache in map(self._census.shown, list(services)):
            if cache is not None:
                present = cache.present.values()
                yield from present if self.capability is None else filter(self._visible, present)

    def _visible(self, instance: Instance) -> bool:
        return self.capability is None or self.capability in instance.capabilities

    # ---- life

    async def __aenter__(self) -> Directory:
        if self._stack is not None:
            raise RuntimeError("a directory is entered once; make another one")
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(tasks_of_block())
            stack.push_async_callback(self._close)
            stack.callback(self._broker.on_connect(self._when_connected))
            stack.callback(self._marks.listen(self._hear_namespace_mark))
            self._following = tasks.create_task(self._follow(), name=str(self))
            if self._wait > 0 and not await self.loaded(self._wait):
                reason = self._outage.reason or "no answer yet"
                log.warning("%s: not loaded within %g s (%s); it goes on behind", self, self._wait, reason)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._stack is not None
        return await self._stack.__aexit__(kind, error, trace)

    async def _close(self) -> None:
        if self._following is not None:
            self._following.cancel()
        for reader in self._reading():
            reader.end()
        async with AsyncExitStack() as ending:  # each, also when cancelled meanwhile
            for leave in self._joined.values():
                ending.push_async_callback(leave)

    # ---- following

    async def _follow(self) -> None:
        """Ask the log and read a snapshot whenever the census wants it; for ever."""
        delays = backoff()
        while True:
            self._wake.clear()
            self._anew.clear()
            try:
                await connection(self._broker)
                await self._subscribe()
                if self._census.unsure:
                    self._census.believe(await self._loading.epoch())
                if self._census.wanted:
                    await self._load()
            except (ReaderLost, BrokerUnavailable, BrokerRefused, StreamMismatch) as error:
                self._census.abandon_load()
                self._outage.goes_on(error)
                await woken(self._anew, next(delays))  # whatever is heard meanwhile: it hurries nobody
                continue
            self._outage.over()
            delays = backoff()
            if not (self._census.unsure or self._census.wanted):
                await woken(self._wake, min(self._until_poll(), self._until_stale()))
                self._poll()
                self._tell_staleness()

    async def _subscribe(self) -> None:
        """Once, and not before the connection first stood (the driver forgets what came before)."""
        await self._marks.subscribe()
        for service in self.services or ("*",):
            if service not in self._joined:
                follow = self._subscriptions.follow(service, self._hear_change, self._hear_service_mark)
                self._joined[service] = await follow

    async def _load(self) -> None:
        first = not self._census.loaded
        if not first:
            log.info("%s: reading it anew, because %s", self, self._census.reason)
            await asyncio.sleep(self._spread())
        await self._loading.read(self._begin, self._take_snapshot)
        self._loaded_at = self._clock()
        self._tell(self._census.end_load(self._loaded_at), first=first)
        if first:
            log.info("%s: loaded, %d instances", self, len(self))
            self._notice.tell()

    def _spread(self) -> float:
        """Seconds to wait before reading anew: longer each time that what was read was not proven afterwards."""
        if self._census.proven_at > self._loaded_at:
            self._spreads = _spreads()
        return next(self._spreads)

    def _begin(self) -> list[str]:
        return [subjects.topologies(self.namespace, service) for service in self._census.begin_load() or ("*",)]

    def _take_snapshot(self, batch: Iterable[Topology]) -> None:
        now = self._clock()
        for told in batch:
            self._census.load(told, now)

    def _until_poll(self) -> float:
        return max(self._census.marked_at, self._loaded_at) + self._poll_interval - self._clock()

    def _poll(self) -> None:
        if self._until_poll() <= 0:
            self._census.want_all(f"there was no mark for {self._poll_interval:g} s")

    def _until_stale(self) -> float:
        left = STALE_AFTER - self.age
        return left if left > 0 else LOOK_INTERVAL

    def _tell_staleness(self) -> None:
        """Say in the log when no mark proves it any more; of a lost connection the broker tells."""
        if self.state == "live":
            self._unproven.over()
        elif not self._broker.connected:
            return
        elif self._unproven.lasted or self._census.proven_at > self._loaded_at:  # else its namespace never had any
            self._unproven.goes_on(f"no adsumd has proven it complete for {self.age:.0f} s")

    # ---- hearing

    def _hear_change(self, told: Topology) -> None:
        self._tell(self._census.take(told, self._clock()))

    def _hear_service_mark(self, service: str, mark: ServiceMark) -> None:
        self._tell(self._census.service_mark(service, mark, self._clock()))

    def _hear_namespace_mark(self, mark: NamespaceMark) -> None:
        self._tell(self._census.namespace_mark(mark, self._clock()))

    def _when_connected(self) -> None:
        if self._joined:
            self._census.reconnected()
        self._wake.set()
        self._anew.set()

    def _tell(self, changes: list[Change], *, first: bool = False) -> None:
        """Hand changes to every reader, and see whether the census wants something asked or read."""
        if self.capability is not None:
            seen = (seen_with(self.capability, change) for change in changes)
            changes = [change for change in seen if change is not None]
        if changes:
            self._memo.clear()
            for reader in self._reading():
                for change in changes if reader.initial or not first else ():
                    reader.add(change)
        if self._census.unsure or self._census.wanted:
            self._wake.set()

    def _reading(self) -> list[Changes]:
        return [reader for known in list(self._readers) if (reader := known()) is not None]


def _spreads() -> Iterator[float]:
    return backoff(SPREAD, 30.0, lambda _, high: random.uniform(0, high))
