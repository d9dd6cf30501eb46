"""A catalog as an auditor reads it: one state of it, as a stream, without writing and without holding up who writes.

A SQLite file is opened read-only, and the lock of the daemon that has it is left alone; PostgreSQL gives one
transaction that sees one state. The schema has to be the one that this program knows.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

import asyncpg

from .catalog import Checkpoint
from .databases import open_catalog
from .errors import CatalogTooNew, CatalogUnavailable, Refusal
from .migrations import load_migrations
from .postgres import PostgresCatalog
from .queries import load_queries
from .rows import Row
from .sqlite import SQLiteCatalog

if TYPE_CHECKING:
    from typing import TypeAlias

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

__all__ = ["NO_CATALOG", "TABLES", "Ledger", "Stands", "open_ledger"]

T = TypeVar("T")
TABLES = ("events", "rejected", "history", "instances")
CHUNK = 1000
BUSY_TIMEOUT = 10.0
TIMEOUT = 60.0
NO_CATALOG = "Name the database of an adsumd, or one that adsum rebuild made."
_LITE, _POSTGRES = load_queries("sqlite"), load_queries("postgres")


class Stands:
    """Where a catalog stands: its checkpoint, and the revision from which on it is complete."""

    def __init__(self, checkpoint: Checkpoint, complete_from: int) -> None:
        self.checkpoint, self.complete_from = checkpoint, complete_from


class Ledger(Protocol):
    """One state of a catalog. Every method raises CatalogUnavailable if the database does not answer."""

    name: str

    async def stands(self) -> Stands | None:
        """Where it stands; None for a catalog that was never bound to a log."""

    as_text: bool
    """Whether JSON stands there as it was written."""

    def table(self, name: str) -> AsyncIterator[list[Row]]:
        """All rows of one of TABLES, some at a time, in the order of its key, the columns as they are written."""

    def stamp(self, seconds: float) -> object:
        """A time as it stands in a row."""

    def seconds(self, stamp: Any) -> float:
        """The time in a row; 0 where it is none."""


def open_ledger(dsn: str) -> AbstractAsyncContextManager[Ledger]:
    """The catalog that a DSN names, read for as long as the block lasts. Raises InvalidValue.

    Entering raises Refusal where there is no catalog or one of another schema, CatalogUnavailable.
    """
    catalog = open_catalog(dsn)
    if isinstance(catalog, SQLiteCatalog):
        return _open_file(catalog)
    assert isinstance(catalog, PostgresCatalog)
    return _open_postgres(catalog, dsn)


def _check_schema(name: str, version: int, dialect: Any) -> None:
    newest = load_migrations(dialect)[-1].version
    if version > newest:
        what = f"the catalog {name} has schema version {version}, this adsum knows versions up to {newest}"
        raise CatalogTooNew(what, "Use the adsum that wrote it or a newer one.")
    if version < newest:
        what = f"the catalog {name} has schema version {version}, this adsum reads version {newest}"
        raise Refusal(what, "Start the adsumd of this version on it once: it brings the catalog up to date.")


# ---- SQLite


class _File:
    as_text = True

    def __init__(self, catalog: SQLiteCatalog, db: sqlite3.Connection) -> None:
        self.name, self.stamp, self._catalog, self._db = catalog.name, catalog.stamp, catalog, db

    async def stands(self) -> Stands | None:
        rows = await self._run(lambda: self._db.execute(_LITE.stands).fetchall())
        return _stands(self.name, rows[0]) if rows else None

    async def table(self, name: str) -> AsyncIterator[list[Row]]:
        cursor = await self._run(partial(self._db.execute, getattr(_LITE, f"all_{name}")))
        while chunk := await self._run(partial(cursor.fetchmany, CHUNK)):
            yield chunk

    def seconds(self, stamp: Any) -> float:
        try:
            return self._catalog.seconds(stamp)
        except (ValueError, TypeError):  # somebody edited it
            return 0.0

    async def _run(self, function: Callable[[], T]) -> T:
        with _translated(self.name):
            return await asyncio.to_thread(function)


def _stands(name: str, row: Row) -> Stands:
    """The checkpoint in a row of SQLite, which takes any value in any column."""
    columns = {"epoch": str, "sequence": int, "event_id": str, "head": bytes, "complete_from": int}
    for (column, kind), value in zip(columns.items(), row, strict=True):
        if not isinstance(value, kind):
            raise Refusal(f"the checkpoint of {name} was edited: its {column} is {value!r}", "Build the catalog anew.")
    epoch, sequence, event_id, head, complete_from = row
    return Stands(Checkpoint(epoch, sequence, event_id, head), complete_from)


@asynccontextmanager
async def _open_file(catalog: SQLiteCatalog) -> AsyncIterator[Ledger]:
    if not catalog.path.is_file():
        raise Refusal(f"there is no file {catalog.path}", NO_CATALOG)
    with _translated(catalog.name):
        db = await asyncio.to_thread(_connect, catalog.path)
    try:
        with _translated(catalog.name):
            if not db.execute(_LITE.has_schema).fetchone()[0]:
                raise Refusal(f"{catalog.name} holds no catalog", NO_CATALOG)
            _check_schema(catalog.name, db.execute(_LITE.schema_version).fetchone()[0], "sqlite")
        yield _File(catalog, db)
    finally:
        db.close()


def _connect(path: Path) -> sqlite3.Connection:
    """A read transaction, begun by its first statement; several threads use it, one after the other."""
    uri = f"file:{quote(str(path))}?mode=ro"
    db = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    db.execute("BEGIN")
    return db


# ---- PostgreSQL


class _Database:
    as_text = False

    def __init__(self, catalog: PostgresCatalog, db: Connection) -> None:
        self.name, self.stamp, self.seconds, self._db = catalog.name, catalog.stamp, catalog.seconds, db

    async def stands(self) -> Stands | None:
        with _translated(self.name):
            row = await self._db.fetchrow(_POSTGRES.stands)
        return Stands(Checkpoint(*row[:4]), row[4]) if row is not None else None

    async def table(self, name: str) -> AsyncIterator[list[Row]]:
        with _translated(self.name):
            cursor = await self._db.cursor(getattr(_POSTGRES, f"all_{name}"))
        while True:
            with _translated(self.name):
                chunk = await cursor.fetch(CHUNK)
            if not chunk:
                return
            yield [tuple(record) for record in chunk]


@asynccontextmanager
async def _open_postgres(catalog: PostgresCatalog, dsn: str) -> AsyncIterator[Ledger]:
    with _translated(catalog.name):
        db = await asyncpg.connect(
            dsn, timeout=TIMEOUT, command_timeout=TIMEOUT, server_settings={"application_name": "adsum verify"}
        )
    try:
        with _translated(catalog.name):
            await db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if not await db.fetchval(_POSTGRES.has_schema):
                raise Refusal(f"{catalog.name} holds no catalog", NO_CATALOG)
            _check_schema(catalog.name, await db.fetchval(_POSTGRES.schema_version), "postgres")
        yield _Database(catalog, db)
    finally:
        db.terminate()


@contextmanager
def _translated(name: str) -> Iterator[None]:
    """The one boundary at which the drivers' errors become ours."""
    try:
        yield
    except (sqlite3.Error, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        raise CatalogUnavailable(f"the catalog {name}: {str(error) or type(error).__name__}") from error
