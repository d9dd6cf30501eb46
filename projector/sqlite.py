"""The catalog in an SQLite file, of one daemon's own.

Three connections, each with aiosqlite's thread: one writes, one reads, so that a long read holds up no write (WAL),
and one answers questions about the past, so that nothing else waits for those.
Every call is one hop to that thread and back: a transaction of five statements would otherwise take a dozen hops,
and a task that is cancelled between two of them would leave it open.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import msgspec

from adsum.events.errors import AdsumError
from adsum.events.garbage import PausedGC
from adsum.events.names import Key

from .catalog import FORGOTTEN_TOGETHER, Checkpoint, Heard, Held, Observations, Observed
from .errors import CatalogRefused, CatalogUnavailable, CheckpointMoved, Fenced, Refusal
from .failpoints import passed
from .fold import Batch
from .lock import FileLock
from .migrations import due, load_indexes, load_migrations
from .queries import Question, load_queries
from .record import Record
from .rows import BatchRows, Row, moment, records_of, rows_of

__all__ = ["SQLiteCatalog"]

T = TypeVar("T")

BUSY_TIMEOUT = 10.0
RETRY_DELAYS = (0.040, 0.080)
_SQL = load_queries("sqlite")
_MIGRATIONS = load_migrations("sqlite")
_INDEXES = load_indexes("sqlite")
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_REFUSED = {sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE}
_BROKEN = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
_CLOSED_DOORS = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
# In WAL, NORMAL syncs at checkpoints instead of at every commit: a power failure may take the last transactions, whole
# and in order, and what they held is read again from the log, from the checkpoint that went back with them.
# What the WAL holds goes into the database in `tidy`, by the other connection: done by the commit that passes SQLite's
# own limit (1,000 pages, every 80th registration) it held that one up for 4 to 14 ms. The limit here bounds the disk.
# `tidy` done but once a second let what a thousand events a second had written go to the disk at once, and the broker's
# flush of the log waited for that: their last percent was seen after 45 ms instead of 14.
# The cache (KiB, taken as needed) holds what a batch touches of ten indexes: with 2 MB it was read again and again.
_SETTINGS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA wal_autocheckpoint = 20000",
    "PRAGMA cache_size = -32768",
)
UNTIDY_FROM = 1000
"""Pages in the WAL."""
PAGES_A_BATCH = 14
"""That a transaction touches whatever it stores; each event is counted as one more."""


class SQLiteCatalog:
    """A Catalog in a file. `<file>.lock` beside it is held from `open` to `close`: one daemon a file.

    `busy_timeout` is how long (seconds) a statement waits for another program that has the file locked; three tries
    of that, then CatalogUnavailable.
    """

    shared = False

    def __init__(self, path: Path, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self.name = f"sqlite:///{path}"
        self.busy_timeout = busy_timeout
        self.path = path
        self._pages = 0
        self._lock = FileLock(path.with_name(f"{path.name}.lock"), f"the catalog {self.name}")
        self._writer: aiosqlite.Connection | None = None
        self._reader: aiosqlite.Connection | None = None
        self._answerer: aiosqlite.Connection | None = None

    async def open(self) -> None:
        """Lock the file, create it if need be, migrate. Raises CatalogTooNew, CatalogInUse, Refusal."""
        self._lock.acquire()
        try:
            with self._translated(opening=True):
                await asyncio.to_thread(_probe, self.path)
                self._writer = await self._connect()
                await _hop(self._writer, _use_wal)
                migrate = partial(_migrate, name=self.name)
                await self._try(self._writer, partial(_transaction, "BEGIN IMMEDIATE", migrate))
                self._reader = await self._connect()
                self._answerer = await self._connect()
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
        return await self._read(_records)

    async def set_aside(self) -> int:
        """How many messages of the log were set aside."""
        ((count,),) = await self._read(partial(_fetch, sql=_SQL.set_aside))
        return int(count)

    async def folded(self, event_ids: Collection[str]) -> set[str]:
        """Those of these event ids that are in the catalog's events."""
        wanted = msgspec.json.encode(list(event_ids)).decode()
        return {event_id for (event_id,) in await self._read(partial(_fetch, sql=_SQL.folded, values=(wanted,)))}

    async def store(self, expected: Checkpoint, batch: Batch) -> Checkpoint:
        """Store a batch, move the checkpoint to its last message. Raises CheckpointMoved, CatalogRefused."""
        moved = Checkpoint(expected.epoch, batch.last.sequence, batch.last_id, batch.head)
        rows = rows_of(batch, _stamp)
        await self._write(partial(_store, expected=expected, moved=moved, rows=rows))
        self._pages += PAGES_A_BATCH + len(batch.links)
        return moved

    async def departures(self, keys: Iterable[Key]) -> dict[Key, tuple[str, int, str]]:
        """For keys that are gone: (term, sequence, cause) of the event that ended their last life."""
        wanted = msgspec.json.encode(list(keys)).decode()
        rows = await self._read(partial(_fetch, sql=_SQL.departures, values=(wanted,)))
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
        asked = partial(_fetch, sql=getattr(_SQL, query), values=values)
        with self._translated():
            return await self._try(self._opened(self._answerer), partial(_transaction, "BEGIN", asked))

    @asynccontextmanager
    async def bulk(self) -> AsyncIterator[None]:
        """Without the indexes, which are made at the end: sorted at once they cost a third of what they do row by row.

        Where it was cut off they are missing, and `open` makes them.
        """
        await self._write(_drop_indexes)
        yield
        for create in _INDEXES.values():  # each by itself, so that whoever is to end meanwhile ends soon
            await self._write(partial(_run, sql=create))

    def stamp(self, seconds: float) -> object:
        """See Catalog."""
        return _stamp(seconds)

    def seconds(self, stamp: str) -> float:
        """See Catalog."""
        return _seconds(stamp)

    async def forget(self, through: int) -> bool:
        """Remove some of what is before; False once it is all gone."""
        return await self._write(partial(_forget, through=through))

    @property
    def untidy(self) -> bool:
        """See Catalog. By what batches are known to touch: the WAL itself does not tell how much of it is moved."""
        return self._pages >= UNTIDY_FROM

    async def tidy(self) -> None:
        """Move what the WAL holds into the database; no write waits for it, and no question about the past."""
        self._pages = 0
        with self._translated():
            await _hop(self._opened(self._reader), _checkpoint_wal)

    async def close(self) -> None:
        """Close the connections, then release the lock. Idempotent."""
        opened = self._answerer, self._reader, self._writer
        self._answerer = self._reader = self._writer = None
        try:
            for connection in opened:
                if connection is not None:
                    with self._translated():
                        await connection.close()
        finally:
            self._lock.release()

    async def _connect(self) -> aiosqlite.Connection:
        # isolation_level None: no transaction begins behind our back, each is begun and ended here.
        return await aiosqlite.connect(self.path, timeout=self.busy_timeout, isolation_level=None)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The answer of one transaction, which sees one state of the catalog."""
        with self._translated():
            return await self._try(self._opened(self._reader), partial(_transaction, "BEGIN", work))

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._translated():
            return await self._try(self._opened(self._writer), partial(_transaction, "BEGIN IMMEDIATE", work))

    async def _try(self, connection: aiosqlite.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run it, again after a short while where the file was locked; nothing was stored then."""
        for delay in RETRY_DELAYS:
            try:
                return await _hop(connection, function)
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY:
                    raise
            await asyncio.sleep(delay)
        return await _hop(connection, function)

    def _opened(self, connection: aiosqlite.Connection | None) -> aiosqlite.Connection:
        if connection is None:
            raise CatalogUnavailable(f"the catalog {self.name} is not open")
        return connection

    @contextmanager
    def _translated(self, opening: bool = False) -> Iterator[None]:
        """The one boundary at which SQLite's errors become ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._ours(error, opening) from error
        except (OverflowError, UnicodeError) as error:  # while Python turned a value into one of SQLite's
            raise CatalogRefused(f"the catalog {self.name} cannot hold a value: {error}") from error

    def _ours(self, error: sqlite3.Error, opening: bool) -> AdsumError:
        code, told = _code(error), f"the catalog {self.name}: {error}"
        if code in _BROKEN:
            remedy = "Name another file, or move this one away: an empty catalog is built anew from the log."
            return Refusal(told, remedy)
        if opening and code in _CLOSED_DOORS:
            return Refusal(told, "Let this user read and write the file and its folder, or name another one.")
        if opening and code == sqlite3.SQLITE_ERROR:  # its tables are not ours
            return Refusal(told, "The file belongs to another program: name one of the catalog's own.")
        if code in _REFUSED or isinstance(error, sqlite3.InterfaceError | sqlite3.ProgrammingError | sqlite3.DataError):
            return CatalogRefused(told)
        return CatalogUnavailable(told)


async def _hop(connection: aiosqlite.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
    """Run a function in the connection's thread.

    aiosqlite's public methods are one statement a hop (about 0.1 ms each), so this uses the method below them. Once
    begun a function runs to its end, also when the waiting task is cancelled: a transaction is whole or not at all.
    """
    result: T = await connection._execute(function, connection._conn)  # type: ignore[no-untyped-call]  # aiosqlite's
    return result


def _transaction(begin: str, work: Callable[[sqlite3.Connection], T], db: sqlite3.Connection) -> T:
    db.execute(begin)
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite ends it by itself when the disk is full
            db.execute("ROLLBACK")
        raise
    return result


def _probe(path: Path) -> None:
    """Fail here where the file cannot be opened: aiosqlite's thread would still speak to the loop that may be gone."""
    sqlite3.connect(path).close()


def _use_wal(db: sqlite3.Connection) -> None:
    for setting in _SETTINGS:
        db.execute(setting).fetchall()


def _checkpoint_wal(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _migrate(db: sqlite3.Connection, name: str) -> None:
    version = db.execute(_SQL.schema_version).fetchone()[0] if db.execute(_SQL.has_schema).fetchone()[0] else 0
    for migration in due(_MIGRATIONS, version, name):
        for statement in _statements(migration.sql):
            db.execute(statement)
        db.execute(_SQL.record_migration, (migration.version, migration.name))
    for create in _INDEXES.values():  # a rebuild that was cut off left it without some
        db.execute(create.replace("INDEX", "INDEX IF NOT EXISTS", 1))


def _drop_indexes(db: sqlite3.Connection) -> None:
    for name in _INDEXES:
        db.execute(f"DROP INDEX {name}")


def _run(db: sqlite3.Connection, sql: str) -> None:
    db.execute(sql)


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would commit the transaction it runs in."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _fetch(db: sqlite3.Connection, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    return db.execute(sql, values).fetchall()


def _begin(db: sqlite3.Connection, epoch: str) -> None:
    if db.execute(_SQL.begin_checkpoint, (epoch,)).rowcount != 1:
        raise CheckpointMoved("the catalog is bound to a log already")


def _records(db: sqlite3.Connection) -> list[Record]:
    with PausedGC():
        return records_of(db.execute(_SQL.records), _seconds)


def _store(db: sqlite3.Connection, expected: Checkpoint, moved: Checkpoint, rows: BatchRows) -> None:
    if db.execute(_SQL.move_checkpoint, (*expected[:3], *moved[1:])).rowcount != 1:
        raise CheckpointMoved(f"the checkpoint is not at {expected.sequence} any more")
    _many(db, _SQL.insert_events, rows.events)
    _many(db, _SQL.insert_rejected, rows.rejected)
    _many(db, _SQL.end_versions, rows.ended)
    _many(db, _SQL.begin_versions, rows.begun)
    _many(db, _SQL.upsert_instances, rows.present)
    _many(db, _SQL.delete_instances, rows.gone)
    passed("before commit")


def _take(db: sqlite3.Connection) -> int:
    db.execute(_SQL.take_generation)
    generation: int = db.execute(_SQL.leadership).fetchone()[0]
    return generation


def _observed(db: sqlite3.Connection) -> Observed:
    _, clock, announced = db.execute(_SQL.leadership).fetchone()
    with PausedGC():
        heard = tuple(map(Heard._make, db.execute(_SQL.heard)))
    return Observed(clock, heard, tuple(map(Held._make, db.execute(_SQL.held))), announced)


def _observe(db: sqlite3.Connection, generation: int, observations: Observations) -> None:
    values = (generation, observations.clock, observations.announced)
    if db.execute(_SQL.observe, values).rowcount != 1:
        raise Fenced(f"generation {generation} is not the catalog's any more")
    _many(db, _SQL.upsert_heard, observations.heard)
    _many(db, _SQL.delete_heard, [(term,) for term in observations.ended])
    db.execute(_SQL.clear_held)
    _many(db, _SQL.insert_held, observations.held)


def _forget(db: sqlite3.Connection, through: int) -> bool:
    db.execute(_SQL.forget, (through,))
    parts = (_SQL.forget_events, _SQL.forget_rejected, _SQL.forget_versions)
    return sum(db.execute(part, (through, FORGOTTEN_TOGETHER)).rowcount for part in parts) > 0


def _many(db: sqlite3.Connection, sql: str, rows: Sequence[Row]) -> None:
    if rows:
        db.executemany(sql, rows)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 for an error that Python's module raised itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _stamp(seconds: float) -> str:
    return moment(seconds).isoformat(timespec="microseconds")[:-6] + "Z"  # without the +00:00 of UTC


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
