"""Many caches over few processes, each with a connection of its own, and what each of them saw of one change."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from adsum.events.signals import Instance

from . import making
from .children import Child, Pipe
from .filling import TTL
from .observing import spent
from .peers import client_of
from .peers.client import windowed

__all__ = ["changed", "crowds", "looked", "opened", "speak"]

OPENING = 20
"""Caches that begin at the same time, in a process; ZooKeeper's queue of new connections holds fifty."""
OPEN_LIMIT = 600.0
PING = 30.0
"""Seconds between two pings of a connection: at the default of two, thousands of them would keep one process busy."""
CHANGED = 0
"""The number of the instance that changes."""


class Waiting:
    """When each cache of this process saw the version that is waited for."""

    def __init__(self) -> None:
        self.heard = 0
        """Changes heard in all."""
        self._seen: dict[str, list[float]] = {}
        self._more = asyncio.Event()

    def __call__(self, id: str, instance: Instance | None) -> None:
        """See `peers.client.Heard`."""
        self.heard += 1
        if instance is not None and id == making.id_of(CHANGED):
            self._seen.setdefault(instance.version, []).append(time.monotonic())
            self._more.set()

    async def until(self, version: str, count: int, timeout: float) -> list[float]:
        """The times, once they are so many or so long has passed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while len(self._seen.get(version, ())) < count:
                    self._more.clear()
                    await self._more.wait()
        return self._seen.pop(version, [])


async def hold(pipe: Pipe, kind: str, address: str, count: int, shared: bool) -> None:
    """Hold so many caches, `shared`: all of one client. Answers (version, seconds), or None: (heard, CPU seconds)."""
    options = {"ping": PING} if kind == "adsum" else {}
    async with AsyncExitStack() as stack:
        waiting = Waiting()

        async def one() -> None:
            client = common or await stack.enter_async_context(client_of(kind, address, **options))
            await stack.enter_async_context(client.watch(waiting))

        common = await stack.enter_async_context(client_of(kind, address, **options)) if shared else None
        await pipe.hear()
        await windowed((one() for _ in range(count)), OPENING)
        gc.collect()
        gc.freeze()  # in a process of its own, no cache would have the collector go through hundreds of others
        pipe.tell()
        while True:
            asked = await pipe.hear()
            pipe.tell((waiting.heard, spent()) if asked is None else await waiting.until(asked[0], count, asked[1]))


@asynccontextmanager
async def crowds(
    kind: str, address: str, count: int, processes: int, shared: bool = False
) -> AsyncIterator[list[Child]]:
    """Processes that will hold so many caches, spread evenly, once they are told to (`opened`)."""
    async with AsyncExitStack() as stack:
        shares = [count // processes + (n < count % processes) for n in range(processes)]
        made = [Child(hold, kind=kind, address=address, count=share, shared=shared) for share in shares]
        yield [await stack.enter_async_context(child) for child in made]


async def opened(children: list[Child]) -> None:
    """Let them open their caches; until all are complete."""
    for child in children:
        child.tell()
    for child in children:
        await child.hear(OPEN_LIMIT)


async def speak(pipe: Pipe, kind: str, address: str, count: int) -> None:
    """Register so many, then change one to each version that comes: when the call began."""
    async with client_of(kind, address) as one:
        await one.register_many(range(count), TTL)
        pipe.tell()
        while True:
            version = await pipe.hear()
            began = time.monotonic()
            await one.change(CHANGED, version)
            pipe.tell(began)


async def looked(children: list[Child]) -> tuple[int, float]:
    """(changes heard, CPU seconds) of all their caches so far."""
    heard, cpu = zip(*[await child.ask() for child in children], strict=True)
    return sum(heard), sum(cpu)


async def changed(speaker: Child, children: list[Child], version: str, timeout: float) -> list[float]:
    """Seconds from the call that changes the instance until each cache showed it, sorted."""
    for child in children:
        child.tell((version, timeout))
    began = await speaker.ask(version)
    seen = [await child.hear(timeout + 60) for child in children]
    return sorted(at - began for times in seen for at in times)
