"""What a SQLite catalog holds now, read from outside while adsumd writes it: the truth to compare caches with."""

from __future__ import annotations

import sqlite3
from pathlib import Path

__all__ = ["present"]


def present(file: Path, namespace: str = "default") -> dict[tuple[str, str], int]:
    """(service, id) -> revision of everybody who is there."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=5) as connection:
        rows = connection.execute(
            "SELECT service, instance, revision FROM instances WHERE namespace = ?", (namespace,)
        ).fetchall()
    connection.close()
    return {(service, id): revision for service, id, revision in rows}
