"""The contract suite runs against both databases: `database` is one of them, new; `catalog` a catalog open on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adsum.projector.catalog import Catalog
from adsum.projector.databases import open_catalog
from tests.databases import Database, PostgresDatabase, SQLiteDatabase, empty_postgres, postgres, postgres_server

__all__ = ["Database", "empty_postgres", "postgres", "postgres_server"]


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
