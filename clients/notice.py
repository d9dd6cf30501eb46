"""Waiting: for something to hold that another task will change, to be woken, for the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from adsum.events.broker import Broker

__all__ = ["Notice", "connection", "woken"]

CONNECT_LIMIT = 1.0
"""Seconds without a connection that are no trouble worth a word: it has only just begun."""


class Notice:
    """Whoever changes something calls `tell`; whoever waits looks again each time. Nobody misses a change."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: asyncio.Event | None = None  # while somebody waits

    def tell(self) -> None:
        """Wake everybody who waits."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def until(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `holds()`, at most `timeout` seconds (None: for ever); whether it holds now."""
        try:
            async with asyncio.timeout(timeout):
                while not holds():
                    self._event = self._event or asyncio.Event()
                    await self._event.wait()
        except TimeoutError:
            return holds()
        return True


async def woken(event: asyncio.Event, seconds: float) -> bool:
    """Sleep until `event` is set, at most `seconds`; whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def connection(broker: Broker) -> None:
    """Wait a moment for the connection if there is none. Raises BrokerUnavailable, BrokerRefused."""
    if not broker.connected:
        await broker.ready(CONNECT_LIMIT)
