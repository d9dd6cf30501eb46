"""What a catalog holds, the same way for both dialects, and what the log alone would make of it."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from adsum.events.reader import Message
from adsum.projector.fold import fold_batch
from adsum.projector.sqlite import SQLiteCatalog
from tests.databases import Database, SQLiteDatabase

__all__ = ["Tables", "digest", "refold", "tables"]

Tables = dict[str, list[list[object]]]

_TABLES = {
    "checkpoint": "SELECT epoch, sequence, event_id, head FROM checkpoint",
    "instances": "SELECT * FROM instances ORDER BY namespace, service, instance",
    "history": "SELECT * FROM history ORDER BY began_revision",
    "events": "SELECT * FROM events ORDER BY sequence",
    "rejected": "SELECT * FROM rejected ORDER BY sequence",
}


async def tables(database: Database) -> Tables:
    """All that the fold wrote, in values that do not depend on the dialect."""
    return {name: [list(map(_plain, row)) for row in await database.run(sql)] for name, sql in _TABLES.items()}


def digest(content: object) -> str:
    """The same for the same content."""
    return hashlib.blake2b(msgspec.json.encode(content, order="sorted"), digest_size=16).hexdigest()


async def refold(log: Sequence[Message], epoch: str) -> Tables:
    """What a new catalog holds once the whole log is folded into it, as one batch."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "refold.db"
        catalog = SQLiteCatalog(file)
        await catalog.open()
        try:
            await catalog.store(await catalog.begin(epoch), fold_batch({}, log))
        finally:
            await catalog.close()
        return await tables(SQLiteDatabase(file))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, str) and value.startswith("{"):
        return json.loads(value)
    return value
