"""The catalog in PostgreSQL, which other daemons may share.

Nothing is trusted to be still there: every transaction has a limit of time, a connection that failed or was given up
is thrown away, and the pool makes another one, so the same catalog goes on when the server is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import asyncpg

from adsum.events.errors import AdsumError
from adsum.events.garbage import PausedGC
from adsum.events.names import Key

from .catalog import FORGOTTEN_TOGETHER, Checkpoint, Heard, Held, Observations, Observed
from .errors import CatalogRefused, CatalogUnavailable, CheckpointMoved, Fenced, Refusal
from .failpoints import passed
from .fold import Batch
from .migrations import Migration, due, load_migrations
from .queries import Question, load_queries
from .record import Record
from .rows import BatchRows, Row, moment, records_of, rows_of

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]

__all__ = ["PostgresCatalog"]

T = TypeVar("T")

log = logging.getLogger("adsum.catalog")

TIMEOUT = 30.0
MAX_CONNECTIONS = 6
CLOSE_LIMIT = 5.0
_SQL = load_queries("postgres")
_MIGRATIONS = load_migrations("postgres")
_MIGRATION_LOCK = 0x616473756D  # "adsum"
# A daemon that is paused or cut off in the middle of a transaction must not keep its locks from its successor. A plan
# is made for each call: one kept from when a table was empty would scan it once it has grown, until the next ANALYZE.
# And a limit for statements that is the role's or the database's own would refuse the same large batch for ever.
_SETTINGS = (
    "SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL plan_cache_mode = force_custom_plan; "
    f"SET LOCAL statement_timeout = '{TIMEOUT:g}s'"
)
_BEGIN = f"BEGIN; {_SETTINGS}"
# Of a catalog with years of history an index takes minutes, and whoever begins again after a limit never gets there.
_BEGIN_MIGRATION = f"{_BEGIN}; SET LOCAL statement_timeout = 0"
_BEGIN_READ = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_SETTINGS}"
_REFUSED = ("22", "23", "54")  # SQLSTATE classes: data exception, integrity constraint, program limit exceeded
_CLOSED_DOORS = ("0A", "28", "3D", "3F", "42")  # feature, authorization, database or schema name, access rule


class PostgresCatalog:
    """A Catalog in the PostgreSQL database that `dsn` names; `name` is the DSN as it may be shown.

    `timeout` is how long (seconds) a call may take, waiting for a connection included, before CatalogUnavailable.
    """

    shared = True

    def __init__(self, dsn: str, name: str, timeout: float = TIMEOUT) -> None:
        self.name = name
        self.timeout = timeout
        self._dsn = dsn
        self._pool: Pool | None = None

    async def open(self) -> None:
        """Connect and migrate. Raises CatalogTooNew, Refusal where the server will not have us as we are."""
        try:
            with self._translated(opening=True):
                self._pool = await asyncpg.create_pool(
                    self._dsn,
                    min_size=0,
                    max_size=MAX_CONNECTIONS,
                    timeout=self.timeout,
                    server_settings={"application_name": "adsumd"},
                    reset=_keep_as_it_is,
                )
                async with self._transaction(_BEGIN_READ) as db:
                    missing = await _missing(db, self.name)
                if missing:
                    log.info("the catalog %s: migrating to version %d", self.name, missing[-1].version)
                    async with self._transaction(_BEGIN_MIGRATION, limited=False) as db:
                        await _migrate(db, self.name)
        except BaseException:
            await self.close()
            raise

    async def checkpoint(self) -> Checkpoint | None:
        """Where the fold stands; None for a catalog that was never bound to a log."""
        rows = await self._read(partial(_fetch, sql=_SQL.checkpoint))
        return Checkpoint(*rows[0]) if rows else None

    async def begin(self, epoch: str) -> Checkpoint:
        """Bind a catalog that never folded anything to the log of this epoch. Raises CheckpointMoved."""
        await self._write(partial(_begin, epoch=epoch))
        return Checkpoint(epoch, 0, "")

    async def records(self) -> list[Record]:
        """All live records, ordered by key."""
        with PausedGC():
            rows = await self._read(partial(_fetch, sql=_SQL.records))
            return await asyncio.to_thread(records_of, rows, datetime.timestamp)  # the loop goes on meanwhile

    async def set_aside(self) -> int:
        """How many messages of the log were set aside."""
        ((count,),) = await self._read(partial(_fetch, sql=_SQL.set_aside))
        return int(count)

    async def folded(self, event_ids: Collection[str]) -> set[str]:
        """Those of these event ids that are in the catalog's events."""
        rows = await self._read(partial(_fetch, sql=_SQL.folded, values=(list(event_ids),)))
        return {event_id for (event_id,) in rows}

    async def store(self, expected: Checkpoint, batch: Batch) -> Checkpoint:
        """Store a batch, move the checkpoint to its last message. Raises CheckpointMoved, CatalogRefused.

        When the connection is lost during the commit, CatalogUnavailable leaves open whether it was stored; the
        checkpoint tells, and the same call raises CheckpointMoved if it was.
        """
        moved = Checkpoint(expected.epoch, batch.last.sequence, batch.last_id, batch.head)
        rows = rows_of(batch, moment)
        await self._write(partial(_store, expected=expected, moved=moved, rows=rows))
        return moved

    async def departures(self, keys: Iterable[Key]) -> dict[Key, tuple[str, int, str]]:
        """For keys that are gone: (term, sequence, cause) of the event that ended their last life."""
        columns = _columns(list(keys), 3)
        rows = await self._read(partial(_fetch, sql=_SQL.departures, values=columns))
        return {Key(*row[:3]): (row[3], row[4], row[5]) for row in rows}

    async def take(self) -> int:
        """Begin a new generation of leadership; its number."""
        return await self._write(_take)

    async def observed(self) -> Observed:
        """What was last written down with `observe`."""
        return await self._read(_observed)

    async def observe(self, generation: int, observations: Observations) -> None:
        """Write down what was observed. Raises Fenced if the generation is not the catalog's."""
        await self._write(partial(_observe, generation=generation, observations=observations))

    async def rows(self, query: Question, *values: object) -> list[Row]:
        """What a named query answers."""
        rows = await self._read(partial(_fetch, sql=getattr(_SQL, query), values=values))
        return [tuple(row) for row in rows]

    def bulk(self) -> AbstractAsyncContextManager[None]:
        """Nothing else is done than always: others may read it meanwhile."""
        return nullcontext()

    def stamp(self, seconds: float) -> object:
        """See Catalog."""
        return moment(seconds)

    def seconds(self, stamp: datetime) -> float:
        """See Catalog."""
        return stamp.timestamp()

    async def forget(self, through: int) -> bool:
        """Remove some of what is before; False once it is all gone."""
        return await self._write(partial(_forget, through=through))

    untidy = False

    async def tidy(self) -> None:
        """Nothing: the server does its own housekeeping."""

    async def close(self) -> None:
        """Close the connections, by force once CLOSE_LIMIT has passed. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CLOSE_LIMIT):
                await pool.close()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            pool.terminate()

    async def _read(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The answer of one transaction, which sees one state of the catalog."""
        with self._translated():
            async with self._transaction(_BEGIN_READ) as db:
                return await work(db)

    async def _write(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        with self._translated():
            async with self._transaction(_BEGIN) as db:
                return await work(db)

    @asynccontextmanager
    async def _transaction(self, begin: str, limited: bool = True) -> AsyncIterator[Connection]:
        """A transaction within the limit of time, committed unless an error leaves the block."""
        pool = self._pool
        if pool is None:
            raise CatalogUnavailable(f"the catalog {self.name} is not open")
        async with asyncio.timeout(self.timeout if limited else None):
            connection = await pool.acquire()
            try:
                await connection.execute(begin)
                yield connection
                await connection.execute("COMMIT")
            except BaseException as error:
                await _abandon(connection, error)
                raise
            finally:
                await pool.release(connection)

    @contextmanager
    def _translated(self, opening: bool = False) -> Iterator[None]:
        """The one boundary at which the driver's errors become ours."""
        try:
            yield
        except asyncpg.PostgresError as error:
            raise self._ours(error, opening) from error
        except asyncpg.ClientConfigurationError as error:
            raise Refusal(f"the catalog {self.name}: {error}", "Mend the DSN of the catalog.") from error
        except TimeoutError as error:
            raise CatalogUnavailable(f"the catalog {self.name} did not answer within {self.timeout:g} s") from error
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise CatalogUnavailable(f"the catalog {self.name}: {error}") from error
        except (OverflowError, UnicodeError) as error:
            raise CatalogRefused(f"the catalog {self.name} cannot hold a value: {error}") from error

    def _ours(self, error: asyncpg.PostgresError, opening: bool) -> AdsumError:
        """Only what is wrong with the data itself is refused for good; all else may be mended on the server."""
        told, state = f"the catalog {self.name}: {error}", error.sqlstate or ""
        if state.startswith(_REFUSED):
            return CatalogRefused(told)
        if opening and state.startswith(_CLOSED_DOORS):
            remedy = "Name a database of its own for the catalog, and a user who may connect and create tables there."
            return Refusal(told, remedy)
        return CatalogUnavailable(told)


async def _keep_as_it_is(connection: object) -> None:
    """Instead of asyncpg's reset, a round trip after every call: nothing is set here that outlives a transaction."""


async def _abandon(connection: Connection, error: BaseException) -> None:
    """End a transaction that failed: politely if the server said why or we did, else with its connection.

    A server that takes no writes is left: it may be a standby by now, and the next connection finds its successor.
    """
    rolled_back = False
    try:
        read_only = isinstance(error, asyncpg.ReadOnlySQLTransactionError)
        if isinstance(error, asyncpg.PostgresError | AdsumError) and not read_only:
            with suppress(
                asyncpg.PostgresError, asyncpg.InterfaceError, OSError
            ):  # the first error tells what happened
                await connection.execute("ROLLBACK")
                rolled_back = True
    finally:
        if not rolled_back:
            with suppress(asyncpg.InterfaceError):  # the pool has dropped a connection that the server closed
                connection.terminate()


async def _missing(db: Connection, name: str) -> list[Migration]:
    """The migrations that the database lacks. Raises CatalogTooNew."""
    version = await db.fetchval(_SQL.schema_version) if await db.fetchval(_SQL.has_schema) else 0
    return due(_MIGRATIONS, version, name)


async def _migrate(db: Connection, name: str) -> None:
    """Bring the database to this program's schema. Daemons that start at once wait for one another."""
    await db.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
    for migration in await _missing(db, name):
        await db.execute(migration.sql)
        await db.execute(_SQL.record_migration, migration.version, migration.name)


async def _fetch(db: Connection, sql: str, values: Sequence[object] = ()) -> list[asyncpg.Record]:
    return await db.fetch(sql, *values)


async def _begin(db: Connection, epoch: str) -> None:
    if await db.execute(_SQL.begin_checkpoint, epoch) != "INSERT 0 1":
        raise CheckpointMoved("the catalog is bound to a log already")


async def _store(db: Connection, expected: Checkpoint, moved: Checkpoint, rows: BatchRows) -> None:
    if await db.execute(_SQL.move_checkpoint, *expected[:3], *moved[1:]) != "UPDATE 1":
        raise CheckpointMoved(f"the checkpoint is not at {expected.sequence} any more")
    await _many(db, _SQL.insert_events, rows.events)
    await _many(db, _SQL.insert_rejected, rows.rejected)
    await _many(db, _SQL.end_versions, rows.ended)
    await _many(db, _SQL.begin_versions, rows.begun)
    await _many(db, _SQL.upsert_instances, rows.present)
    await _many(db, _SQL.delete_instances, rows.gone)
    passed("before commit")


async def _take(db: Connection) -> int:
    await db.execute(_SQL.take_generation)
    generation: int = await db.fetchval(_SQL.leadership)
    return generation


async def _observed(db: Connection) -> Observed:
    leadership = await db.fetchrow(_SQL.leadership)
    assert leadership is not None  # a migration put it there
    _, clock, announced = leadership
    with PausedGC():
        heard = tuple(map(Heard._make, await db.fetch(_SQL.heard)))
    return Observed(clock, heard, tuple(map(Held._make, await db.fetch(_SQL.held))), announced)


async def _observe(db: Connection, generation: int, observations: Observations) -> None:
    if await db.execute(_SQL.observe, generation, observations.clock, observations.announced) != "UPDATE 1":
        raise Fenced(f"generation {generation} is not the catalog's any more")
    await _many(db, _SQL.upsert_heard, observations.heard)
    await _many(db, _SQL.delete_heard, [(term,) for term in observations.ended])
    await db.execute(_SQL.clear_held)
    await _many(db, _SQL.insert_held, observations.held)


async def _forget(db: Connection, through: int) -> bool:
    await db.execute(_SQL.forget, through)
    parts = (_SQL.forget_events, _SQL.forget_rejected, _SQL.forget_versions)
    done = [await db.execute(part, through, FORGOTTEN_TOGETHER) for part in parts]
    return done != ["DELETE 0"] * len(parts)


async def _many(db: Connection, sql: str, rows: Sequence[Row]) -> None:
    if rows:
        await db.execute(sql, *_columns(rows, len(rows[0])))


def _columns(rows: Sequence[Row], width: int) -> list[tuple[Any, ...]]:
    """Rows as one array a column."""
    return list(zip(*rows, strict=True)) if rows else [()] * width
