"""Waiting for something to hold that another task of the same loop will change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Notice"]


class Notice:
    """Whoever changes something calls `tell`; whoever waits looks again each time. Nobody misses a change."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def tell(self) -> None:
        """Wake everybody who waits."""
        self._event.set()
        self._event = asyncio.Event()

    async def until(self, holds: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until `holds()`, at most `timeout` seconds (None: for ever); whether it holds now."""
        try:
            async with asyncio.timeout(timeout):
                while not holds():
                    await self._event.wait()
        except TimeoutError:
            return holds()
        return True
