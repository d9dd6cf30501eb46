"""A store that keeps nothing of what was folded but the ids of the events, for whoever wants only the fold itself.

The ids lie in a temporary database of SQLite's, which goes to disk where it grows: an event id that was folded before
changes nothing, for ever. Its one column has the constraints of the catalogs, so that it refuses what they refuse.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from types import TracebackType
from typing import NamedTuple

import msgspec

from .catalog import Checkpoint
from .errors import CatalogRefused
from .fold import Batch
from .rows import BatchRows, Row, Stamp, rows_of

__all__ = ["Folded", "Scratch"]

_TABLE = "CREATE TABLE ids (id TEXT PRIMARY KEY CHECK (length(id) <= 200)) WITHOUT ROWID"
_KNOWN = "SELECT id FROM ids WHERE id IN (SELECT value FROM json_each(?))"


class Folded(NamedTuple):
    """A batch, and the rows that a catalog would hold of it."""

    batch: Batch
    rows: BatchRows


class Scratch:
    """A Store. `take_folded` gives what was stored since it was last called; `stamp` is how its rows spell a time."""

    name = "of nobody"

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp
        self._stood: Checkpoint | None = None
        self._folded: list[Folded] = []
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute(_TABLE)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def take_folded(self) -> list[Folded]:
        """Each batch is given once."""
        folded, self._folded = self._folded, []
        return folded

    async def checkpoint(self) -> Checkpoint | None:
        """See Store."""
        return self._stood

    async def folded(self, event_ids: Collection[str]) -> set[str]:
        """See Store."""
        wanted = msgspec.json.encode(list(event_ids)).decode()
        return {event_id for (event_id,) in self._db.execute(_KNOWN, (wanted,))}

    async def store(self, expected: Checkpoint, batch: Batch) -> Checkpoint:
        """See Store."""
        rows = rows_of(batch, self._stamp)
        self._keep([row[1:2] for row in rows.events])
        self._folded.append(Folded(batch, rows))
        self._stood = Checkpoint(expected.epoch, batch.last.sequence, batch.last_id, batch.head)
        return self._stood

    def _keep(self, ids: list[Row]) -> None:
        self._db.execute("BEGIN")
        try:
            self._db.executemany("INSERT INTO ids VALUES (?)", ids)
        except (sqlite3.IntegrityError, OverflowError, UnicodeError) as error:
            self._db.execute("ROLLBACK")
            raise CatalogRefused(str(error)) from error
        self._db.execute("COMMIT")
