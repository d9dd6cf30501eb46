"""A server with many instances registered, which nobody lets beat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .children import Child, Pipe
from .peers import Server, client_of

__all__ = ["TTL", "all_visible", "filled"]

TTL = 1500.0
"""As long as adsum takes: nobody may fall silent while it is measured."""
FILL_LIMIT = 900.0
LOOK = 0.5


async def fill(pipe: Pipe, kind: str, address: str, count: int) -> None:
    """Register so many, and stay: ZooKeeper's nodes go with their session."""
    async with client_of(kind, address) as one:
        await one.register_many(range(count), TTL)
        pipe.tell()
        await pipe.hear()


async def all_visible(kind: str, server: Server, count: int) -> None:
    """Until a cache that begins now shows so many: adsum acknowledges before it tells."""
    deadline = time.monotonic() + FILL_LIMIT
    async with client_of(kind, server.address) as one:
        while (found := len(await one.load())) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found:,} of {count:,} visible after {FILL_LIMIT:g} s")
            await asyncio.sleep(LOOK)


@asynccontextmanager
async def filled(kind: str, server: Server, count: int) -> AsyncIterator[None]:
    """So many are registered, and visible, while the block runs."""
    async with Child(fill, kind=kind, address=server.address, count=count) as filler:
        await filler.hear(FILL_LIMIT)
        await all_visible(kind, server, count)
        yield
