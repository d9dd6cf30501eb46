"""What SQLite and PostgreSQL have in common: a table with each instance's last heartbeat, read anew every second.

Who is alive is decided by the reader's clock, which is the writer's here, since all run on one machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from . import client

__all__ = ["BATCH", "TABLE", "PolledClient"]

TABLE = (
    "CREATE TABLE IF NOT EXISTS instances (id TEXT PRIMARY KEY, value {bytes} NOT NULL, ttl {float} NOT NULL, "
    "heard {float} NOT NULL)"
)
BATCH = 500
"""Rows a transaction."""


class PolledClient(client.Client):
    """One whose caches poll."""

    @asynccontextmanager
    async def watch(self, heard: client.Heard) -> AsyncIterator[object]:
        """See `client.Client`."""
        ready = asyncio.Event()
        polling = asyncio.create_task(client.polled(self.load, heard, ready))
        await ready.wait()
        try:
            yield None
        finally:
            polling.cancel()
            await asyncio.wait([polling])
