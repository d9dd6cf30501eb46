"""The named queries: one file a dialect (`sql/<dialect>/queries.sql`), the same names in both.

A block begins with `-- name: <name>` and ends at the next. The names are the fields of Queries, so a query that is
missing, superfluous or misspelled is noticed when the file is read, and a use of it by the type checker.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Dialect", "Queries", "Question", "load_queries", "parse_queries", "sql_text"]

Dialect: TypeAlias = Literal["sqlite", "postgres"]
Question: TypeAlias = Literal[
    "extent",
    "first_logged",
    "revision_at",
    "next_began",
    "versions_at",
    "versions_between",
    "versions_of_instance",
    "next_logged",
    "logged",
    "logged_of_instance",
    "leadership",
    "namespaces",
]
"""The queries that `Catalog.rows` runs: they only read."""
_HEAD = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Queries(NamedTuple):
    """The text of each query."""

    has_schema: str
    schema_version: str
    record_migration: str
    checkpoint: str
    begin_checkpoint: str
    move_checkpoint: str
    records: str
    set_aside: str
    namespaces: str
    folded: str
    departures: str
    insert_events: str
    insert_rejected: str
    end_versions: str
    begin_versions: str
    upsert_instances: str
    delete_instances: str
    take_generation: str
    leadership: str
    heard: str
    held: str
    observe: str
    upsert_heard: str
    delete_heard: str
    clear_held: str
    insert_held: str
    extent: str
    first_logged: str
    revision_at: str
    next_began: str
    versions_at: str
    versions_between: str
    versions_of_instance: str
    next_logged: str
    logged: str
    logged_of_instance: str
    forget: str
    forget_events: str
    forget_rejected: str
    forget_versions: str
    stands: str
    all_events: str
    all_rejected: str
    all_history: str
    all_instances: str


def sql_text(dialect: Dialect, *path: str) -> str:
    """The text of a file below `sql/<dialect>/`."""
    return files("adsum.projector").joinpath("sql", dialect, *path).read_text(encoding="utf-8")


def parse_queries(text: str) -> dict[str, str]:
    """The blocks of a file of queries, by name. Raises ValueError for a name given twice."""
    _, *parts = _HEAD.split(text)
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError(f"a query is named twice: {sorted(names)}")
    return {name: body.strip().removesuffix(";") for name, body in zip(names, bodies, strict=True)}


def load_queries(dialect: Dialect) -> Queries:
    """The queries of a dialect. Raises ValueError unless the file has exactly the fields of Queries."""
    found = parse_queries(sql_text(dialect, "queries.sql"))
    if set(found) != set(Queries._fields):
        raise ValueError(f"{dialect}: missing or superfluous: {sorted(set(found) ^ set(Queries._fields))}")
    return Queries(**found)
