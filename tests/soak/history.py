"""The record of a run, read again. Imports nothing of the product.

A folder holds `log.jsonl`, the broker's log as it was read in the end (`sequence`, `time`, `subject`, `data`), and one
file for each start of each process, `<name>.<number>.jsonl`, whose lines all have `at` and `fact`:

    service-N   registering, left {key}            before it registers, after it left; a key is "namespace/service/id"
                stored {subject, id, sequence}     the broker acknowledged an event
                said {key, kind, value}            a change was said to be in the log; the value is said only once
                standing {key, state, term, value, health, mode}   what it now wants said of the instance
    watcher-N   following {services, capability}   before the directory is entered
                view {state, age, shown, gone}     what the cache shows: the differences to the view before
                change {kind, key, before, after}  what `changes()` gave; revisions
    observer    beat {term, counter, stored}, announced {key, revision, stored}, tick   as the broker stored it, when
    director    fault, undone, crashed {target}, lost {process}, healed, settled: what was done, and where all agreed
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Fact", "History", "Row", "Run", "Tail", "read_history"]

Fact: TypeAlias = dict[str, Any]


class Row(NamedTuple):
    """A message of the log as the broker holds it. `time` is the broker's clock, in seconds since 1970."""

    sequence: int
    time: float
    subject: str
    data: str


class Run(NamedTuple):
    """One start of one process, and what it wrote until it ended."""

    name: str
    number: int
    facts: list[Fact]


class History(NamedTuple):
    """All that was recorded; `runs` by name and number."""

    log: list[Row]
    runs: list[Run]

    def of(self, kind: str) -> Iterator[Run]:
        """The runs of the processes whose name begins with `kind`."""
        return (run for run in self.runs if run.name.startswith(kind))

    def facts(self, kind: str, *facts: str) -> Iterator[Fact]:
        """These facts of all runs of processes whose name begins with `kind`."""
        return (fact for run in self.of(kind) for fact in run.facts if fact["fact"] in facts)


class Tail:
    """What was added to a file since the last look. A line that is not whole yet is left for the next one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def more(self) -> list[Fact]:
        """The new facts."""
        with self.path.open("rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
        self._read += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines()]


def read_history(folder: Path) -> History:
    """The record in a folder."""
    runs = []
    for path in folder.glob("*.*.jsonl"):
        name, number, _ = path.name.split(".")
        runs.append(Run(name, int(number), Tail(path).more()))
    rows = Tail(folder / "log.jsonl").more()
    log = [Row(row["sequence"], row["time"], row["subject"], row["data"]) for row in rows]
    return History(log, sorted(runs, key=lambda run: (run.name, run.number)))
