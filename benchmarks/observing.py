"""Processes that hold caches and note when each saw what."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from adsum.events.signals import Instance

from .children import Child, Pipe
from .peers import client_of

__all__ = ["Seen", "observers", "spent"]


def spent() -> float:
    """CPU seconds of this process so far."""
    times = os.times()
    return times.user + times.system


class Seen:
    """What a cache saw: `came` and `went`, by id, at the first time each (monotonic seconds)."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}
        self.went: dict[str, float] = {}
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def __call__(self, id: str, instance: Instance | None) -> None:
        """See `peers.client.Heard`."""
        (self.came if instance is not None else self.went).setdefault(id, time.monotonic())
        self._loop.call_soon_threadsafe(self._changed.set)

    async def until(self, came: int, went: int, timeout: float) -> None:
        """Until so many came and went, at most so long; whether it is so the caller has to see."""
        deadline = time.monotonic() + timeout
        while len(self.came) < came or len(self.went) < went:
            self._changed.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, 0.5))
            except TimeoutError:
                continue


async def observe(pipe: Pipe, kind: str, address: str, came: int, went: int) -> None:
    """Say when the cache is complete; upon a time limit, tell what it saw until then, and its CPU seconds."""
    async with client_of(kind, address) as one:
        seen = Seen()
        async with one.watch(seen):
            used = spent()
            pipe.tell()
            await seen.until(came, went, await pipe.hear())
            pipe.tell((seen.came, seen.went, spent() - used))
            await pipe.hear()


@asynccontextmanager
async def observers(kind: str, address: str, count: int, came: int = 0, went: int = 0) -> AsyncIterator[list[Child]]:
    """So many processes with a cache each, complete when the block begins."""
    async with AsyncExitStack() as stack:
        made = [Child(observe, kind=kind, address=address, came=came, went=went) for _ in range(count)]
        children = [await stack.enter_async_context(child) for child in made]
        for child in children:
            await child.hear()
        yield children
