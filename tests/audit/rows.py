"""What a catalog of either dialect holds, row by row, for comparing two of them."""

from __future__ import annotations

import sqlite3
from typing import Any

import asyncpg

__all__ = ["rows"]


async def rows(dsn: str, sql: str) -> list[tuple[Any, ...]]:
    """The answer to a query that both dialects understand."""
    if dsn.startswith("sqlite:///"):
        with sqlite3.connect(f"file:{dsn.removeprefix('sqlite:///')}?mode=ro", uri=True) as db:
            found = db.execute(sql).fetchall()
        db.close()
        return found
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()
