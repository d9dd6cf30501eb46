"""The subscriptions of a registry's directories: one a subject, whose messages are read once for all that follow it.

Several parts of a program often follow the same service: so the broker holds and sends it once, and each state is
decoded and kept once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeAlias

from nats.aio.subscription import Subscription

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_service_mark
from adsum.events.signals import ServiceMark, Topology
from adsum.events.wire import Heard

from .states import read, read_state

__all__ = ["Leave", "Subscriptions"]

Leave: TypeAlias = Callable[[], Awaitable[None]]


class Subscriptions:
    """Listeners are plain functions; they must not raise."""

    def __init__(self, broker: Broker, namespace: str) -> None:
        self._broker, self._namespace = broker, namespace
        self._shared: dict[str, _Shared] = {}

    async def follow(
        self, service: str, change: Callable[[Topology], None], mark: Callable[[str, ServiceMark], None]
    ) -> Leave:
        """Hand every change and every mark of a service ("*": of all) to these. Gives back what ends it.

        In force when this returns; to be called while connected. Raises BrokerUnavailable.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(
                await self._join(subjects.changes(self._namespace, service), self._read_change, change)
            )
            stack.push_async_callback(
                await self._join(subjects.service_mark(self._namespace, service), self._read_mark, mark)
            )
            return stack.pop_all().aclose

    async def _join(
        self, subject: str, read: Callable[[Heard], tuple[Any, ...] | None], listener: Callable[..., None]
    ) -> Leave:
        shared = self._shared.setdefault(subject, _Shared(read))
        leave = partial(self._leave, subject, shared, shared.add(listener))
        try:
            async with shared.subscribing:
                if shared.subscription is None:
                    shared.subscription = await self._broker.listen(subject, shared.hear)
        except BaseException:
            await leave()
            raise
        return leave

    async def _leave(self, subject: str, shared: _Shared, number: int) -> None:
        del shared.listeners[number]
        if shared.listeners:  # who still waits for the subscription is among them
            return
        del self._shared[subject]
        if shared.subscription is not None:
            await self._broker.unsubscribe(shared.subscription)

    def _read_change(self, msg: Heard) -> tuple[Topology] | None:
        told = read_state(msg.subject, msg.data)
        return (told,) if told is not None else None

    def _read_mark(self, msg: Heard) -> tuple[str, ServiceMark] | None:
        mark = read(decode_service_mark, msg.subject, msg.data)
        service = subjects.service_of_mark(msg.subject)
        if mark is None or msg.subject != subjects.service_mark(self._namespace, service):
            return None
        return service, mark


class _Shared:
    """One subject."""

    def __init__(self, read: Callable[[Heard], tuple[Any, ...] | None]) -> None:
        self._read = read
        self._next = 0
        self.listeners: dict[int, Callable[..., None]] = {}
        self.subscribing = asyncio.Lock()
        self.subscription: Subscription | None = None

    def add(self, listener: Callable[..., None]) -> int:
        """One more; by which number it is taken out again."""
        self._next += 1
        self.listeners[self._next] = listener
        return self._next

    def hear(self, msg: Heard) -> None:
        """A message."""
        told = self._read(msg)
        if told is not None:
            for listener in list(self.listeners.values()):
                listener(*told)
