"""Opening a catalog that is new, old, newer than the program, or somebody's else; and migrating it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path

import asyncpg
import pytest

from adsum.projector import postgres as postgres_module
from adsum.projector import sqlite as sqlite_module
from adsum.projector.catalog import Catalog, Heard
from adsum.projector.databases import open_catalog
from adsum.projector.errors import CatalogTooNew, CatalogUnavailable, Refusal
from adsum.projector.migrations import Migration, due, load_migrations
from adsum.projector.postgres import PostgresCatalog
from adsum.projector.queries import Dialect, sql_text
from tests.databases import PostgresServer

from .conftest import Database
from .story import Story, key

NEWEST = load_migrations("sqlite")[-1]
SECOND = Migration(
    NEWEST.version + 1, "second", "CREATE TABLE second (word text);\nINSERT INTO second VALUES ('; not the end');"
)
BROKEN = Migration(NEWEST.version + 1, "broken", "CREATE TABLE second (word text);\nINSERT INTO nowhere VALUES (1);")


async def test_a_catalog_newer_than_the_program(catalog: Catalog, database: Database) -> None:
    await catalog.close()
    await database.run("INSERT INTO schema_version (version, name) VALUES (999, 'from the future')")
    newer = open_catalog(database.dsn)
    told = rf"schema version 999, .*versions up to {NEWEST.version}\. Start the adsum"
    with pytest.raises(CatalogTooNew, match=told):
        await newer.open()
    with pytest.raises(CatalogUnavailable, match="not open"):
        await newer.checkpoint()


async def test_a_new_migration_is_applied_once_and_keeps_what_is_there(
    catalog: Catalog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    stood = await story.tell(catalog, story.register(key()))
    await catalog.close()
    for module in (sqlite_module, postgres_module):
        monkeypatch.setattr(module, "_MIGRATIONS", [*module._MIGRATIONS, SECOND])
    for _ in range(2):
        newer = open_catalog(database.dsn)
        await newer.open()
        assert await newer.checkpoint() == stood
        assert await newer.records() == list(story.records.values())
        await newer.close()
    assert await database.run("SELECT word FROM second") == [("; not the end",)]
    stored = await database.run("SELECT version, name FROM schema_version ORDER BY 1")
    assert stored[-2:] == [(NEWEST.version, NEWEST.name), (SECOND.version, "second")]


async def test_a_migration_that_fails_leaves_the_catalog_as_it_was(
    catalog: Catalog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await catalog.close()
    for module in (sqlite_module, postgres_module):
        monkeypatch.setattr(module, "_MIGRATIONS", [*module._MIGRATIONS, BROKEN])
    with pytest.raises(Refusal, match="nowhere"):
        await open_catalog(database.dsn).open()
    monkeypatch.undo()
    again = open_catalog(database.dsn)
    await again.open()
    await again.close()
    assert await database.run("SELECT max(version) FROM schema_version") == [(NEWEST.version,)]


async def test_a_catalog_of_before_the_running_hash_is_folded_anew(
    empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets what it folded, and keeps what was heard."""
    database = empty_database
    for module in (sqlite_module, postgres_module):
        monkeypatch.setattr(module, "_MIGRATIONS", module._MIGRATIONS[:1])
    monkeypatch.setattr(sqlite_module, "_INDEXES", {})
    await open_and_close(database)
    await database.run("INSERT INTO checkpoint (id, epoch, sequence, event_id) VALUES (1, 'e', 7, 'x')")
    await database.run("INSERT INTO heard (term, counter, clock) VALUES ('t', 3, 1.5)")
    monkeypatch.undo()
    newer = open_catalog(database.dsn)
    await newer.open()
    assert (await newer.checkpoint(), (await newer.observed()).heard) == (None, (Heard("t", 3, 1.5),))
    await newer.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_migrations_are_numbered_without_a_gap(dialect: Dialect) -> None:
    migrations = load_migrations(dialect)
    assert [migration.version for migration in migrations] == list(range(1, len(migrations) + 1))
    assert [migration.name for migration in migrations] == [migration.name for migration in load_migrations("sqlite")]
    assert due(migrations, 0, "x") == migrations
    assert due(migrations, len(migrations), "x") == []


async def test_migrating_sqlite_from_zero_gives_the_schema_that_is_checked_in(tmp_path: Path) -> None:
    migrated = open_catalog(f"sqlite:///{tmp_path / 'migrated.db'}")
    await migrated.open()
    await migrated.close()
    with sqlite3.connect(tmp_path / "written.db") as written:
        written.executescript(sql_text("sqlite", "schema.sql"))
    written.close()
    assert _sqlite_schema(tmp_path / "migrated.db") == _sqlite_schema(tmp_path / "written.db") != []


async def test_migrating_postgresql_from_zero_gives_the_schema_that_is_checked_in(
    postgres_server: PostgresServer, empty_postgres: str
) -> None:
    written_name = await postgres_server.create()
    connection = await asyncpg.connect(postgres_server.dsn(written_name))
    await connection.execute(sql_text("postgres", "schema.sql"))
    await connection.close()
    migrated = open_catalog(empty_postgres)
    await migrated.open()
    await migrated.close()
    assert postgres_server.schema(empty_postgres) == postgres_server.schema(postgres_server.dsn(written_name))
    assert "CREATE TABLE public.instances" in postgres_server.schema(empty_postgres)
    await postgres_server.drop(written_name)


async def test_daemons_that_start_at_once_migrate_postgresql_once(empty_postgres: str) -> None:
    catalogs = [PostgresCatalog(empty_postgres, "x") for _ in range(8)]
    await asyncio.gather(*(catalog.open() for catalog in catalogs))
    assert [await catalog.take() for catalog in catalogs] == list(range(1, 9))
    await asyncio.gather(*(catalog.close() for catalog in catalogs))


async def open_and_close(database: Database) -> None:
    catalog = open_catalog(database.dsn)
    await catalog.open()
    await catalog.close()


def _sqlite_schema(file: Path) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(file)
    try:
        rows = connection.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master ORDER BY 1, 2")
        return [tuple(re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.split())) for text in row) for row in rows]
    finally:
        connection.close()
