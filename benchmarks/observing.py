"""Processes that hold caches and note when each saw what."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from adsum.events.signals import Instance

from .children import Child, Pipe
from .peers import client_of

__all__ = ["Seen", "observers", "spent"]


def spent() -> float:
    """CPU seconds of this process so far."""
    times = os.times()
    return times.user + times.system


class Seen:
    """What a cache saw: `came` and `went`, by id, at the first time each (monotonic seconds).

    `came` is how many are expected, `went` who.
    """

    def __init__(self, came: int, went: frozenset[str]) -> None:
        self.came: dict[str, float] = {}
        self.went: dict[str, float] = {}
        self._expected = came, went
        self._loop = asyncio.get_running_loop()
        self._all = asyncio.Event()

    def __call__(self, id: str, instance: Instance | None) -> None:
        """See `peers.client.Heard`."""
        (self.came if instance is not None else self.went).setdefault(id, time.monotonic())
        came, went = self._expected
        if len(self.came) >= came and went <= self.went.keys() and not self._all.is_set():
            self._loop.call_soon_threadsafe(self._all.set)

    async def all(self, timeout: float) -> None:
        """Until all that is expected was seen, at most so long; whether it was the caller has to see."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all.wait(), timeout)


async def observe(pipe: Pipe, kind: str, address: str, came: int, went: frozenset[str]) -> None:
    """Say when the cache is complete; upon a time limit, tell what it saw until then, and its CPU seconds."""
    async with client_of(kind, address) as one:
        seen = Seen(came, went)
        async with one.watch(seen):
            used = spent()
            pipe.tell()
            await seen.all(await pipe.hear())
            pipe.tell((seen.came, seen.went, spent() - used))
            await pipe.hear()


@asynccontextmanager
async def observers(
    kind: str, address: str, count: int, came: int = 0, went: frozenset[str] = frozenset()
) -> AsyncIterator[list[Child]]:
    """So many processes with a cache each, complete when the block begins."""
    async with AsyncExitStack() as stack:
        made = [Child(observe, kind=kind, address=address, came=came, went=went) for _ in range(count)]
        children = [await stack.enter_async_context(child) for child in made]
        for child in children:
            await child.hear()
        yield children
