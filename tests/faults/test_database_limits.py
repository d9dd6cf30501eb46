"""A PostgreSQL that answers and does not do what is asked: it takes no writes, or gives no statement enough time."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from adsum.projector import postgres as dialect
from adsum.projector.errors import CatalogUnavailable
from adsum.projector.migrations import Migration
from adsum.projector.postgres import PostgresCatalog
from tests.catalog.story import EPOCH, Story
from tests.databases import PostgresDatabase
from tests.making import key
from tests.waiting import until

_WAITED_LONG = """SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
AND clock_timestamp() - query_start > interval '500 ms'"""


async def altered(dsn: str, change: str) -> None:
    """Change a setting of the database, for connections that begin from now on."""
    connection = await asyncpg.connect(dsn, server_settings={"default_transaction_read_only": "off"})
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} {change}")
    await connection.close()


async def test_a_connection_that_takes_no_writes_is_left(postgres: str) -> None:
    """It may lead to what is a standby by now, for as long as it stands: the next call finds whoever takes writes."""
    await altered(postgres, "SET default_transaction_read_only = on")
    catalog = PostgresCatalog(postgres, "catalog")
    await catalog.open()
    with pytest.raises(CatalogUnavailable, match="read-only transaction"):
        await catalog.take()
    await altered(postgres, "RESET default_transaction_read_only")
    assert await catalog.take() == 1
    await catalog.close()


async def test_a_limit_of_the_databases_own_does_not_refuse_a_large_batch_for_ever(postgres: str) -> None:
    """A batch is as large as what waits in the log: what takes too long once would take too long each time. Here it
    takes long because somebody else holds a row."""
    await altered(postgres, "SET statement_timeout = '200ms'")
    catalog, story = PostgresCatalog(postgres, "catalog"), Story()
    await catalog.open()
    at = await catalog.begin(EPOCH)
    beside: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(postgres)
    async with beside.transaction():
        await beside.execute("SELECT * FROM checkpoint FOR UPDATE")
        storing = asyncio.create_task(catalog.store(at, story.batch([story.register(key("a"))])))
        await until(lambda: beside.fetchval(_WAITED_LONG), (1).__eq__)
        assert not storing.done()
    assert (await storing).sequence == 1
    await beside.close()
    await catalog.close()


async def test_a_migration_may_take_longer_than_a_call(empty_postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index over years of history takes minutes: whoever gives up after the limit of a call never gets there."""
    slow = Migration(len(dialect._MIGRATIONS) + 1, "slow", "SELECT pg_sleep(3)")
    monkeypatch.setattr(dialect, "_MIGRATIONS", [*dialect._MIGRATIONS, slow])
    await altered(empty_postgres, "SET statement_timeout = '2s'")
    catalog = PostgresCatalog(empty_postgres, "catalog", timeout=2)
    await catalog.open()
    assert await PostgresDatabase(empty_postgres).run("SELECT max(version) FROM schema_version") == [(slow.version,)]
    await catalog.close()
