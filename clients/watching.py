"""Watching a service: the whole list of who is there, each time that it differs from the one before."""

from __future__ import annotations

import asyncio
import weakref

from msgspec.structs import replace

from adsum.events.signals import Instance

from .directory import Directory, DirectoryState
from .notice import Notice

__all__ = ["Watch", "end_all"]


class _News:
    """What the task that follows tells the one that reads; it outlives neither."""

    def __init__(self) -> None:
        self.count, self.ended, self.notice = 0, False, Notice()

    def more(self) -> None:
        self.count += 1
        self.notice.tell()

    def end(self) -> None:
        self.ended = True
        self.notice.tell()


class Watch:
    """An async iterator, made by `Leases.watch`; it ends when the registry's block is left.

    What it does not know it does not tell: nothing comes before the first list is whole, and while the broker or adsumd
    is away the last one stands. `state` tells which it is. A slow reader gets the newest list only.
    """

    def __init__(self, directory: Directory, routable: bool, running: set[asyncio.Task[None]]) -> None:
        self._directory, self._routable, self._news = directory, routable, _News()
        self._seen = 0
        self._given: tuple[Instance, ...] | None = None
        self._task = asyncio.create_task(_follow(directory, self._news), name=f"watch: {directory}")
        running.add(self._task)
        self._task.add_done_callback(running.discard)
        forget = weakref.finalize(self, self._task.cancel)  # who drops it watches no more
        forget.atexit = False

    @property
    def state(self) -> DirectoryState:
        """loading: nothing is known yet. live: proven complete within the last 7 s. stale: the last that was known."""
        return self._directory.state

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> tuple[Instance, ...]:
        news = self._news
        while True:
            await news.notice.until(lambda: news.ended or news.count > self._seen)
            if news.ended:
                await asyncio.wait([self._task])
                if not self._task.cancelled():
                    self._task.result()
                raise StopAsyncIteration
            self._seen = news.count
            found = tuple(sorted(self._directory.instances(routable=self._routable), key=lambda one: one.id))
            if self._given is None or not _same(found, self._given):
                self._given = found
                return found


async def end_all(running: set[asyncio.Task[None]]) -> None:
    """End the tasks of all watches, and wait until they have left."""
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def _follow(directory: Directory, news: _News) -> None:
    try:
        async with directory:
            changes = directory.changes(initial=False)
            await directory.loaded()
            news.more()
            async for _ in changes:
                news.more()
    finally:
        news.end()


def _same(some: tuple[Instance, ...], others: tuple[Instance, ...]) -> bool:
    """Whether two lists tell the same, whenever and in which log it was said."""
    return len(some) == len(others) and all(
        one is other or _plain(one) == _plain(other) for one, other in zip(some, others, strict=True)
    )


def _plain(instance: Instance) -> Instance:
    return replace(instance, epoch="", revision=0)
