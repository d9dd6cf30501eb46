"""What a scenario asks of a system's client. Instances are numbers (see `benchmarks.making`)."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from types import TracebackType
from typing import TypeAlias

from adsum.events.signals import Instance
from benchmarks.making import SERVICE

__all__ = ["Absent", "Client", "Heard", "missing_packages", "polled", "versions", "windowed"]

Heard: TypeAlias = Callable[[str, Instance | None], None]
"""Called with an id and its new state, None once it is out of rotation; also from another thread."""
Cache: TypeAlias = dict[str, Instance]
POLL = 1.0


class Absent(Exception):  # no error: it is told in the table
    """A system cannot be had on this machine; the message says why, and what would help."""


class Client(ABC):
    """Enter it to connect. Every write returns once the server acknowledged it. `group`: the service it is about."""

    def __init__(self, address: str, group: str = SERVICE) -> None:
        self.address, self.group = address, group

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def close(self) -> None:
        """End the connection."""

    @abstractmethod
    async def register(self, number: int, ttl: float) -> None:
        """One instance; called for many at the same time."""

    @abstractmethod
    async def register_many(self, numbers: Sequence[int], ttl: float) -> None:
        """Many, by the fastest way there is."""

    @abstractmethod
    async def heartbeat(self, numbers: Sequence[int]) -> None:
        """A heartbeat of each, by the fastest way there is."""

    @abstractmethod
    async def change(self, number: int, version: str) -> None:
        """Let an instance have another version."""

    @abstractmethod
    async def ask(self, number: int) -> Instance | None:
        """Look one instance up, as a caller would that keeps no cache of its own."""

    @abstractmethod
    async def load(self) -> Sequence[Instance]:
        """All instances, decoded, as a cache reads them at its start."""

    @abstractmethod
    def watch(self, heard: Heard) -> AbstractAsyncContextManager[object]:
        """A cache, complete when the block begins; `heard` is called after each change of it."""

    async def __aenter__(self) -> Client:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def windowed(work: Iterable[Awaitable[object]], width: int) -> None:
    """Await them all, at most `width` at the same time."""
    left = iter(work)

    async def worker() -> None:
        for one in left:
            await one

    await asyncio.gather(*(worker() for _ in range(width)))


async def polled(load: Callable[[], Awaitable[Sequence[Instance]]], heard: Heard, ready: asyncio.Event) -> None:
    """Read all every second, for ever, and tell what differs; `ready` is set after the first time."""
    cache: Cache = {}
    while True:
        began = time.monotonic()
        found = {instance.id: instance for instance in await load()}
        if ready.is_set():
            for id, instance in found.items():
                if cache.get(id) != instance:
                    heard(id, instance)
            for id in cache.keys() - found.keys():
                heard(id, None)
        cache = found
        ready.set()
        await asyncio.sleep(max(0.0, began + POLL - time.monotonic()))


def missing_packages(*modules: str) -> str | None:
    """What to say if one of these cannot be imported."""
    gone = [name for name in modules if importlib.util.find_spec(name) is None]
    return f"no Python package {', '.join(gone)}: install the extra `bench`" if gone else None


def versions(*packages: str) -> str:
    """Packages with their versions."""
    return ", ".join(f"{package} {version(package)}" for package in packages)
