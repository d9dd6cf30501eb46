"""The machinery behind registrations: what keeps one instance said and beating, and what keeps many with few tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from types import TracebackType

import msgspec
from nats.aio.subscription import Subscription

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.description import check_host
from adsum.events.errors import BrokerRefused, BrokerUnavailable, InvalidValue, Undecodable
from adsum.events.lifecycle import Author
from adsum.events.names import Key
from adsum.events.outage import Outage
from adsum.events.signals import NamespaceMark
from adsum.events.together import SharedLog
from adsum.events.wire import Heard

from .beating import Beat, Beats
from .block import tasks_of_block
from .life import Standing
from .marks import Marks
from .reconciler import REMEDY, Reconciler
from .states import read_state
from .turns import Turns

__all__ = ["TOGETHER", "Block", "Owned"]

CLOSE_LIMIT = 6.0
"""Seconds that leaving may take at most."""

TOGETHER = 500
"""Instances that get their turn before all else does."""

log = logging.getLogger("adsum.registration")


class Owned:
    """One instance that this process speaks for. `block` is what keeps it, None before and after."""

    __slots__ = ("_broker", "beat", "block", "closed", "open_host", "reconciler", "turns")

    def __init__(
        self, broker: Broker, shared: SharedLog, key: Key, wanted: Standing, *, open_host: bool, given: bool
    ) -> None:
        self._broker, self.open_host = broker, open_host
        self.closed = False
        self.block: Block | None = None
        self.turns: Turns | None = None
        self.beat = Beat(key, self._living, self.interval)
        self.reconciler = Reconciler(
            broker,
            shared,
            key,
            wanted,
            Author("owner", broker.name),
            given=given,
            outage=Outage(log, str(key), REMEDY, wanted.description.ttl),
            prepare=self._prepare,
            complete=self._complete,
            begun=self.beat_now,
        )

    @property
    def key(self) -> Key:
        """Namespace, service and id."""
        return self.reconciler.key

    def interval(self) -> float:
        """Faster at once, slower only once the log says so: until then the old TTL is what it is judged by."""
        said = self.reconciler.said
        wanted = self.reconciler.wanted.description.heartbeat
        return wanted if said is None else min(wanted, said.description.heartbeat)

    def beat_now(self) -> None:
        """A life began, or is to beat faster."""
        if self.block is not None:
            self.block.beats.wake(self.beat)

    def _living(self) -> str:
        """The term to beat for; "" once the life was ended by others."""
        return "" if self.reconciler.end is not None else self.reconciler.term

    async def _prepare(self) -> None:
        if self.block is not None:
            await self.block.listen(self.key)

    def _complete(self, wanted: Standing) -> Standing:
        """The host that was not given is this process's address on its connection to the broker."""
        if not self.open_host:
            return wanted
        host = self._broker.local_host
        if host is None:
            raise BrokerUnavailable("the broker has not told which address this process has; give a host")
        first, *others = wanted.description.endpoints
        try:
            endpoints = (msgspec.structs.replace(first, host=check_host(host)), *others)
        except InvalidValue as error:  # the broker sees it at an address of this machine's own, as fe80::1%eth0
            told = f"this process's address as the broker sees it is no use to others: {error}; give a host"
            raise BrokerRefused(told) from None
        described = msgspec.structs.replace(wanted.description, endpoints=endpoints)
        return msgspec.structs.replace(wanted, description=described)


class Block:
    """An async context manager that keeps instances: one task for all heartbeats, one for each turn that is taken.

    `whole`: hints are heard for each service as a whole, not for each one by itself. `over` is told of each one
    that says nothing any more.
    """

    def __init__(
        self, broker: Broker, marks: Marks, *, whole: bool, over: Callable[[Owned], None] = lambda one: None
    ) -> None:
        self._broker, self._marks, self._whole, self._over = broker, marks, whole, over
        self.beats = Beats(broker)
        self.owned: dict[Key, Owned] = {}
        self._hints: dict[str, asyncio.Task[Subscription]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._beating: asyncio.Task[None] | None = None
        self._stack: AsyncExitStack | None = None

    # ---- instances

    def add(self, one: Owned) -> None:
        """Begin to speak for it."""
        assert self._tasks is not None
        one.block = self
        self.owned[one.key] = one
        one.turns = Turns(one.reconciler, self._tasks, lambda: self._over(one))
        self.beats.wake(one.beat)
        one.turns.wake()

    async def remove(self, one: Owned) -> None:
        """Beats first, then goodbye: bounded, whatever the broker does."""
        self.beats.end(one.beat)
        one.reconciler.leave()
        assert one.turns is not None
        try:
            if not await one.turns.over(one.reconciler.notice, CLOSE_LIMIT):
                log.warning("%s: left without saying so, it will expire by itself", one.key)
        finally:  # also when cancelled meanwhile
            one.closed, one.block = True, None
            self.owned.pop(one.key, None)
            one.reconciler.notice.tell()

    # ---- hints

    async def listen(self, key: Key) -> None:
        """Hear hints, not before the connection first stood (the driver forgets what came before)."""
        subject = subjects.changes(key.namespace, key.service) if self._whole else subjects.change(key)
        if subject not in self._hints:
            self._hints[subject] = asyncio.create_task(self._subscribe(subject), name=f"hints: {subject}")
        await asyncio.shield(self._hints[subject])

    async def _subscribe(self, subject: str) -> Subscription:
        try:
            await self._marks.subscribe()
            return await self._broker.listen(subject, self._hear)
        except BaseException:
            del self._hints[subject]
            raise

    def _hear(self, msg: Heard) -> None:
        try:
            one = self.owned.get(subjects.key_of(msg.subject))
        except Undecodable:
            return
        if one is None:
            return
        told = read_state(msg.subject, msg.data)
        if told is not None and told.key == one.key:
            one.reconciler.hint(told)

    def _hear_mark(self, mark: NamespaceMark) -> None:
        for one in self._each():
            one.reconciler.hint_epoch(mark.epoch)

    def _when_connected(self) -> None:
        assert self._tasks is not None
        self._tasks.create_task(self._look_again(), name="registrations: look again")

    async def _look_again(self) -> None:
        """Beats first, then looks, some at a time: meanwhile the connection has to answer, or it counts as lost."""
        for one in self._each():
            self.beats.wake(one.beat)
        for at, one in enumerate(self._each(), start=1):
            one.reconciler.reconnected()
            if at % TOGETHER == 0:
                await asyncio.sleep(0)

    def _each(self) -> Iterator[Owned]:
        return iter(list(self.owned.values()))

    # ---- life

    async def __aenter__(self) -> Block:
        async with AsyncExitStack() as stack:
            self._tasks = await stack.enter_async_context(tasks_of_block())
            stack.push_async_callback(self._close)
            stack.callback(self._broker.on_connect(self._when_connected))
            stack.callback(self._marks.listen(self._hear_mark))
            self._beating = self._tasks.create_task(self.beats.run(), name="registrations: heartbeats")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._stack is not None
        return await self._stack.__aexit__(kind, error, trace)

    async def _close(self) -> None:
        """All leave at once, then the hints."""
        if self._beating is not None:
            self._beating.cancel()
        try:
            await asyncio.gather(*map(self.remove, self._each()))
        finally:  # also when cancelled meanwhile
            async with AsyncExitStack() as ending:
                for hearing in self._hints.values():
                    hearing.cancel()
                    ending.push_async_callback(self._deafen, hearing)

    async def _deafen(self, hearing: asyncio.Task[Subscription]) -> None:
        if hearing.done() and not hearing.cancelled() and hearing.exception() is None:
            await self._broker.unsubscribe(hearing.result())
