"""What a catalog holds now, read from outside while adsumd writes it: the truth to compare with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

__all__ = ["present", "rows"]


async def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    """What a query answers, in either dialect."""
    if dsn.startswith("sqlite:///"):
        file = dsn.removeprefix("sqlite:///")
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5)) as database:
            return database.execute(query).fetchall()
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


def present(file: Path, namespace: str = "default") -> dict[tuple[str, str], int]:
    """(service, id) -> revision of everybody who is there."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5) as connection:
        rows = connection.execute(
            "SELECT service, instance, revision FROM instances WHERE namespace = ?", (namespace,)
        ).fetchall()
    connection.close()
    return {(service, id): revision for service, id, revision in rows}
