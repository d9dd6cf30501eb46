"""The contract suite runs against both databases: `database` is one of them, new; `catalog` a catalog open on it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import pytest

from adsum.projector.catalog import Catalog
from adsum.projector.databases import open_catalog
from tests.databases import empty_postgres, postgres, postgres_server

__all__ = ["empty_postgres", "postgres", "postgres_server"]


class Database(Protocol):
    """A database as its operator sees it."""

    dialect: str
    dsn: str

    async def run(self, sql: str) -> list[tuple[Any, ...]]:
        """Run one statement beside the catalog, and what it answers."""


class SQLiteDatabase:
    """A file."""

    dialect = "sqlite"

    def __init__(self, file: Path) -> None:
        self.dsn = f"sqlite:///{file}"
        self._file = file

    async def run(self, sql: str) -> list[tuple[Any, ...]]:
        """See Database."""
        connection = sqlite3.connect(self._file, isolation_level=None)
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()


class PostgresDatabase:
    """A database of the run's server."""

    dialect = "postgres"

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    async def run(self, sql: str) -> list[tuple[Any, ...]]:
        """See Database."""
        connection = await asyncpg.connect(self.dsn)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database of the test's own."""
    if request.param == "sqlite":
        return SQLiteDatabase(tmp_path / "catalog.db")
    return PostgresDatabase(request.getfixturevalue("postgres"))


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database with nothing in it."""
    if request.param == "sqlite":
        return SQLiteDatabase(tmp_path / "catalog.db")
    return PostgresDatabase(request.getfixturevalue("empty_postgres"))


@pytest.fixture
async def catalog(database: Database) -> AsyncIterator[Catalog]:
    """A catalog, open."""
    opened = open_catalog(database.dsn)
    await opened.open()
    yield opened
    await opened.close()
