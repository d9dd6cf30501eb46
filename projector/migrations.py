"""The numbered migrations of a catalog, `sql/<dialect>/migrations/0001_name.sql` and so on, and which are due.

A migration that was released is never changed. `sql/<dialect>/schema.sql` shows what they amount to; a test compares.
In SQLite an index may be missing, where a rebuild was cut off: a migration drops one only IF EXISTS.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from .errors import CatalogTooNew
from .queries import Dialect, sql_text

__all__ = ["Migration", "due", "load_indexes", "load_migrations"]

_INDEX = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+) ON [^;]+;$", re.MULTILINE)


class Migration(NamedTuple):
    """One step from version - 1 to version."""

    version: int
    name: str
    sql: str


def load_migrations(dialect: Dialect) -> list[Migration]:
    """All migrations of a dialect, in order."""
    folder = files("adsum.projector").joinpath("sql", dialect, "migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [
        Migration(int(name[:4]), name[5:].removesuffix(".sql"), sql_text(dialect, "migrations", name)) for name in names
    ]


def load_indexes(dialect: Dialect) -> dict[str, str]:
    """What creates each index of the schema, by its name; not those that belong to a table's own keys."""
    return {found[1]: found[0] for found in _INDEX.finditer(sql_text(dialect, "schema.sql"))}


def due(migrations: Sequence[Migration], version: int, catalog: str) -> list[Migration]:
    """Those that a catalog of this version lacks. Raises CatalogTooNew where it has more than there are."""
    newest = migrations[-1].version
    if version > newest:
        raise CatalogTooNew(
            f"the catalog {catalog} has schema version {version}, this adsum knows versions up to {newest}",
            "Start the adsum that wrote it or a newer one, or name an empty catalog: it is built anew from the log.",
        )
    return [migration for migration in migrations if migration.version > version]
