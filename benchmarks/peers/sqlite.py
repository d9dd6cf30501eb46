"""A heartbeat table in SQLite (aiosqlite, WAL, synchronous=FULL): a commit is on disk when it returns."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from adsum.events.signals import Instance
from benchmarks import making

from . import client
from .serving import Server
from .sql import BATCH, TABLE, PolledClient

UPSERT = "INSERT OR REPLACE INTO instances VALUES (?, ?, ?, ?)"
HEARD = "UPDATE instances SET heard = ? WHERE id = ?"


def missing() -> str | None:
    """See the package."""
    return client.missing_packages("aiosqlite")


def version() -> str:
    """The library's own."""
    return f"SQLite {sqlite3.sqlite_version}, {client.versions('aiosqlite')}"


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Server]:
    """A file; no process, the clients do the work."""
    yield Server(str(folder / "registry.db"), {}, folder)


class Client(PolledClient):
    """See `client.Client`."""

    async def open(self) -> None:
        """Make the table if it is not there."""
        import aiosqlite

        self._database = await aiosqlite.connect(self.address, isolation_level=None, timeout=60)
        await self._database.execute("PRAGMA journal_mode = WAL")
        await self._database.execute("PRAGMA synchronous = FULL")
        await self._database.execute(TABLE.format(bytes="BLOB", float="REAL"))
        self._writing = asyncio.Lock()

    async def close(self) -> None:
        """See `client.Client`."""
        await self._database.close()

    async def register(self, number: int, ttl: float) -> None:
        """A row."""
        await self._database.execute(UPSERT, _row(number, ttl))

    async def register_many(self, numbers: Sequence[int], ttl: float) -> None:
        """In transactions of 500."""
        await self._write(UPSERT, [_row(number, ttl) for number in numbers])

    async def heartbeat(self, numbers: Sequence[int]) -> None:
        """In transactions of 500."""
        now = time.time()
        await self._write(HEARD, [(now, making.id_of(number)) for number in numbers])

    async def _write(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        async with self._writing:
            for first in range(0, len(rows), BATCH):
                await self._database.execute("BEGIN IMMEDIATE")
                await self._database.executemany(sql, rows[first : first + BATCH])
                await self._database.execute("COMMIT")

    async def change(self, number: int, version: str) -> None:
        """Its bytes."""
        new = making.value(number, version=version)
        await self._database.execute("UPDATE instances SET value = ? WHERE id = ?", (new, making.id_of(number)))

    async def ask(self, number: int) -> Instance | None:
        """By the primary key."""
        sql = "SELECT value FROM instances WHERE id = ? AND heard + ttl > ?"
        rows = list(await self._database.execute_fetchall(sql, (making.id_of(number), time.time())))
        return making.read(rows[0][0]) if rows else None

    async def load(self) -> Sequence[Instance]:
        """Who was heard within the TTL."""
        sql = "SELECT value FROM instances WHERE heard + ttl > ?"
        rows = await self._database.execute_fetchall(sql, (time.time(),))
        return [making.read(value) for (value,) in rows]


def _row(number: int, ttl: float) -> tuple[object, ...]:
    return making.id_of(number), making.value(number, ttl), ttl, time.time()
