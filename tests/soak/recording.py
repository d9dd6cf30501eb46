"""Writing down what a process did and saw: one JSON object a line, each written at once and whole."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

__all__ = ["Recorder"]


class Recorder:
    """Writes `<folder>/<name>.<number>.jsonl`, another number each time a process of that name starts.

    A line goes to the system in one call, so that SIGKILL between two of them loses nothing that was written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        number = 1
        while (path := folder / f"{name}.{number}.jsonl").exists():
            number += 1
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, fact: str, **fields: object) -> None:
        """Write one fact, with the time of this machine's clock in `at` (seconds since 1970)."""
        line = json.dumps({"at": time.time(), "fact": fact, **fields}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """Write no more."""
        os.close(self._file)
