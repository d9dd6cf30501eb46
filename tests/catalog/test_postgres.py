"""What only PostgreSQL does: connections that break, a server that crashes or hangs, a commit nobody answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from adsum.projector.catalog import Checkpoint, Observations
from adsum.projector.errors import CatalogRefused, CatalogUnavailable, CheckpointMoved, Fenced, Refusal
from adsum.projector.postgres import _BEGIN, PostgresCatalog
from tests.databases import PostgresServer
from tests.waiting import until

from .story import EPOCH, Story, key

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'adsumd' AND wait_event_type = 'Lock'"


@pytest.fixture
async def catalog(postgres: str) -> AsyncIterator[PostgresCatalog]:
    """A catalog, open."""
    opened = PostgresCatalog(postgres, "postgresql://test")
    await opened.open()
    yield opened
    await opened.close()


@asynccontextmanager
async def beside(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A connection of somebody else's; it may be lost meanwhile."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        connection.terminate()


@asynccontextmanager
async def in_the_middle_of_store(
    catalog: PostgresCatalog, dsn: str, story: Story
) -> AsyncIterator[tuple[asyncio.Task[Checkpoint], asyncpg.Connection[asyncpg.Record]]]:
    """A store whose events are inserted and that waits for a lock on the instances, and who holds the lock."""
    expected = await catalog.checkpoint()
    assert expected is not None
    async with beside(dsn) as other, beside(dsn) as onlooker:
        await other.execute("BEGIN; LOCK TABLE instances")
        task = asyncio.create_task(catalog.store(expected, story.batch([story.register(key(2))])))
        await until(lambda: onlooker.fetchval(WAITING), lambda count: count == 1)
        yield task, other


async def test_it_says_who_it_is(catalog: PostgresCatalog, postgres: str) -> None:
    async with beside(postgres) as other:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'adsumd'"
        assert await other.fetchval(sql) == 1


async def test_a_server_that_crashes_in_the_middle_of_store(
    catalog: PostgresCatalog, postgres: str, postgres_server: PostgresServer
) -> None:
    story = Story()
    await catalog.begin(EPOCH)
    stood = await story.tell(catalog, story.register(key(1)))
    kept = dict(story.records)
    async with in_the_middle_of_store(catalog, postgres, story) as (task, _):
        await asyncio.to_thread(postgres_server.crash)
        with pytest.raises(CatalogUnavailable):
            await task
    for call in (catalog.checkpoint, catalog.records, catalog.take):
        with pytest.raises(CatalogUnavailable):
            await call()
    await asyncio.to_thread(postgres_server.start)
    assert await catalog.checkpoint() == stood
    assert await catalog.records() == list(kept.values())
    assert await catalog.folded(list(story.terms.values())) == {story.terms[key(1)]}
    story.records = kept
    assert (await story.tell(catalog, story.register(key(2)))).sequence == 3


async def test_a_connection_killed_in_the_middle_of_store_leaves_nothing(
    catalog: PostgresCatalog, postgres: str
) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    async with in_the_middle_of_store(catalog, postgres, story) as (task, other):
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'adsumd'"
        await other.execute(sql)
        with pytest.raises(CatalogUnavailable, match="administrator command"):
            await task
    assert await catalog.checkpoint() == expected
    assert await catalog.folded(list(story.terms.values())) == set()


async def test_a_store_that_is_cancelled_leaves_nothing(catalog: PostgresCatalog, postgres: str) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    async with in_the_middle_of_store(catalog, postgres, story) as (task, _):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await catalog.checkpoint() == expected
    assert await catalog.records() == []


async def test_of_two_writers_the_second_is_told(catalog: PostgresCatalog, postgres: str) -> None:
    other = PostgresCatalog(postgres, "other")
    await other.open()
    story = Story()
    expected = await catalog.begin(EPOCH)
    batch = story.batch([story.register(key(number)) for number in range(50)])
    said = await asyncio.gather(*(each.store(expected, batch) for each in (catalog, other)), return_exceptions=True)
    assert {type(outcome) for outcome in said} == {Checkpoint, CheckpointMoved}
    assert len(await other.records()) == 50
    await other.close()


async def test_of_two_leaders_the_first_is_fenced(catalog: PostgresCatalog, postgres: str) -> None:
    other = PostgresCatalog(postgres, "other")
    await other.open()
    first, second = await catalog.take(), await other.take()
    await other.observe(second, Observations(1.0, (), (), (), 1))
    with pytest.raises(Fenced):
        await catalog.observe(first, Observations(2.0, (), (), (), 2))
    await other.close()


@pytest.mark.parametrize("acted", [True, False], ids=["stored", "not stored"])
async def test_a_commit_that_nobody_answers_is_applied_once(
    catalog: PostgresCatalog, postgres: str, postgres_server: PostgresServer, tmp_path: Path, acted: bool
) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    batch = story.batch([story.register(key())])
    async with cut_at_commit(postgres_server.socket, tmp_path, acted):
        far = PostgresCatalog(postgres.replace(str(postgres_server.socket.parent), str(tmp_path)), "far")
        await far.open()
        with pytest.raises(CatalogUnavailable):
            await far.store(expected, batch)
        await far.close()
    moved = Checkpoint(EPOCH, 1, batch.last_id, batch.head)
    if acted:
        async with asyncio.timeout(10):
            while await catalog.checkpoint() != moved:  # noqa: ASYNC110  # it is another process that commits
                await asyncio.sleep(0.02)
        with pytest.raises(CheckpointMoved):
            await catalog.store(expected, batch)
    else:
        assert await catalog.store(expected, batch) == moved
    assert await catalog.checkpoint() == moved
    assert await catalog.records() == list(story.records.values())


async def test_a_server_that_hangs_is_unavailable_until_it_goes_on(
    catalog: PostgresCatalog, postgres: str, postgres_server: PostgresServer
) -> None:
    story = Story()
    await catalog.begin(EPOCH)
    await story.tell(catalog, story.register(key(1)))
    catalog.timeout = 0.4
    postgres_server.pause()
    try:
        for _ in range(3):
            began = time.perf_counter()
            with pytest.raises(CatalogUnavailable, match=r"did not answer within 0\.4 s"):
                await catalog.checkpoint()
            assert time.perf_counter() - began < 2
    finally:
        postgres_server.resume()
    catalog.timeout = 30
    assert await catalog.records() == list(story.records.values())


async def test_closing_while_the_server_hangs_is_bounded(
    postgres: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adsum.projector.postgres.CLOSE_LIMIT", 0.3)
    catalog = PostgresCatalog(postgres, "x")
    await catalog.open()
    postgres_server.pause()
    try:
        await asyncio.wait_for(catalog.close(), 3)
        await catalog.close()
    finally:
        postgres_server.resume()


async def test_a_paused_daemon_keeps_no_lock_from_its_successor(catalog: PostgresCatalog, postgres: str) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    async with beside(postgres) as paused:
        await paused.execute(_BEGIN.replace("'5s'", "'300ms'"))
        await paused.execute("UPDATE checkpoint SET sequence = 99")
        assert (await catalog.store(expected, story.batch([story.register(key())]))).sequence == 1


async def test_a_server_that_is_not_there_yet(postgres: str, postgres_server: PostgresServer) -> None:
    catalog = PostgresCatalog(postgres, "postgresql://test")
    await asyncio.to_thread(postgres_server.crash)
    for _ in range(2):
        with pytest.raises(CatalogUnavailable, match="postgresql://test"):
            await catalog.open()
    await asyncio.to_thread(postgres_server.start)
    await catalog.open()
    assert await catalog.checkpoint() is None
    await catalog.close()


async def test_a_database_that_does_not_exist(postgres_server: PostgresServer) -> None:
    with pytest.raises(Refusal, match='database "nowhere" does not exist') as refused:
        await PostgresCatalog(postgres_server.dsn("nowhere"), "x").open()
    assert refused.value.remedy.startswith("Name a database of its own")


async def test_the_database_of_another_program(empty_postgres: str) -> None:
    async with beside(empty_postgres) as other:
        await other.execute("CREATE TABLE events (what text)")
    with pytest.raises(Refusal, match='relation "events" already exists'):
        await PostgresCatalog(empty_postgres, "x").open()


async def test_many_calls_at_once_share_few_connections(catalog: PostgresCatalog, postgres: str) -> None:
    generations = await asyncio.gather(*(catalog.take() for _ in range(100)))
    assert sorted(generations) == list(range(1, 101))
    async with beside(postgres) as other:
        assert await other.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'adsumd'") <= 8


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncpg.CannotConnectNowError, CatalogUnavailable),
        (asyncpg.TooManyConnectionsError, CatalogUnavailable),
        (asyncpg.AdminShutdownError, CatalogUnavailable),
        (asyncpg.CrashShutdownError, CatalogUnavailable),
        (asyncpg.DiskFullError, CatalogUnavailable),
        (asyncpg.QueryCanceledError, CatalogUnavailable),
        (asyncpg.SerializationError, CatalogUnavailable),
        (asyncpg.DeadlockDetectedError, CatalogUnavailable),
        (asyncpg.ReadOnlySQLTransactionError, CatalogUnavailable),
        (asyncpg.InsufficientPrivilegeError, CatalogUnavailable),
        (asyncpg.UndefinedTableError, CatalogUnavailable),
        (asyncpg.CharacterNotInRepertoireError, CatalogRefused),
        (asyncpg.UntranslatableCharacterError, CatalogRefused),
        (asyncpg.NumericValueOutOfRangeError, CatalogRefused),
        (asyncpg.DatetimeFieldOverflowError, CatalogRefused),
        (asyncpg.InvalidTextRepresentationError, CatalogRefused),
        (asyncpg.UniqueViolationError, CatalogRefused),
        (asyncpg.ProgramLimitExceededError, CatalogRefused),
        (asyncpg.DataError, CatalogRefused),
    ],
)
def test_only_what_is_wrong_with_the_data_is_refused_for_good(
    error: type[asyncpg.PostgresError], kind: type[Exception]
) -> None:
    with pytest.raises(kind), PostgresCatalog("postgresql://x", "x")._translated():
        raise error("so it is")


@asynccontextmanager
async def cut_at_commit(socket: Path, folder: Path, acted: bool) -> AsyncIterator[None]:
    """A way to the server that breaks at the second COMMIT (the first is the migration's).

    `acted`: the server gets the COMMIT and its answer is lost, else the COMMIT itself is lost.
    """
    commits = 0
    tasks: set[asyncio.Task[None]] = set()

    async def carry(client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        nonlocal commits
        answers, onward = await asyncio.open_unix_connection(socket)
        answering = asyncio.create_task(copy(answers, back))
        tasks.add(answering)
        while sent := await client.read(65536):
            commits += b"COMMIT" in sent
            if commits == 2:
                answering.cancel()
                if acted:
                    onward.write(sent)
                    await onward.drain()
                    await asyncio.sleep(0.2)  # for the database to act on it before the line is cut
                break
            onward.write(sent)
        for writer in (back, onward):
            writer.close()

    async with await asyncio.start_unix_server(carry, folder / socket.name):
        yield
    await asyncio.gather(*tasks, return_exceptions=True)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
