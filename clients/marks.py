"""The namespace's marks: one subscription of a registry, handed to everybody in it who listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nats.aio.subscription import Subscription

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_namespace_mark
from adsum.events.signals import NamespaceMark
from adsum.events.wire import Heard

from .states import read

__all__ = ["Marks"]


class Marks:
    """Listeners are plain functions; they must not raise."""

    def __init__(self, broker: Broker, namespace: str) -> None:
        self._broker, self._subject = broker, subjects.namespace_mark(namespace)
        self._listeners: dict[int, Callable[[NamespaceMark], None]] = {}
        self._next = 0
        self._subscription: Subscription | None = None
        self._subscribing = asyncio.Lock()

    def listen(self, listener: Callable[[NamespaceMark], None]) -> Callable[[], None]:
        """Hand every mark to `listener`; gives back a function that ends it."""
        number = self._next
        self._next += 1
        self._listeners[number] = listener

        def forget() -> None:
            self._listeners.pop(number, None)

        return forget

    async def subscribe(self) -> None:
        """Make sure that marks are heard; to be called while connected. Raises BrokerUnavailable."""
        async with self._subscribing:
            if self._subscription is None:
                self._subscription = await self._broker.listen(self._subject, self._hear)

    def _hear(self, msg: Heard) -> None:
        mark = read(decode_namespace_mark, msg.subject, msg.data)
        if mark is None or msg.subject != self._subject:  # a consumer of somebody else's delivers other subjects here
            return
        for listener in list(self._listeners.values()):
            listener(mark)
