"""Runs scenarios: in each round every contender once, in turn, each from an empty server of its own.

Interleaved so that what else the machine does meets all of them; the figure is the median of the rounds, with the
smallest and the largest beside it.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import pkgutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from . import scenarios
from .peers import Absent
from .scenario import Contender, Figures, Level, Scenario

__all__ = ["Row", "compare", "load", "names"]

TEMPORARY = "adsum-bench-"
ROUND_LIMIT = 900.0


class Row(msgspec.Struct, kw_only=True):
    """A contender at a size. `trouble`: why it has no figures, where it has none; `absent`: it cannot be had here."""

    scenario: str
    size: dict[str, Any]
    contender: str
    rounds: list[Figures] = []
    absent: bool = False
    trouble: str = ""

    def figure(self, name: str) -> tuple[float, float, float] | None:
        """(median, smallest, largest) over the rounds, None where it has none."""
        values = [one[name] for one in self.rounds if name in one]
        return (statistics.median(values), min(values), max(values)) if values else None


def names() -> list[str]:
    """All scenarios."""
    return sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__))


def load(name: str) -> Scenario:
    """A scenario by its name."""
    found: Scenario = importlib.import_module(f"{scenarios.__name__}.{name}").SCENARIO
    return found


async def compare(
    name: str,
    level: Level,
    rounds: int | None = None,
    only: Sequence[str] = (),
    fields: Mapping[str, Any] | None = None,
) -> list[Row]:
    """A scenario, size by size. `only`: these contenders; `fields`: in place of those of the sizes."""
    scenario = load(name)
    chosen = {each: run for each, run in scenario.contenders.items() if not only or each in only}
    sizes: list[dict[str, Any]] = []
    for size in scenario.sizes[level]:
        altered = dict(size) | {key: value for key, value in (fields or {}).items() if key in size}
        sizes += [altered] if altered not in sizes else []
    rows = []
    for size in sizes:
        table = [Row(scenario=name, size=size, contender=each) for each in chosen]
        for number in range(rounds or scenario.rounds[level]):
            for row in table:
                if not row.trouble:
                    await _round(row, chosen[row.contender], number)
        rows += table
    return rows


async def _round(row: Row, run: Contender, number: int) -> None:
    """One contender once; what goes wrong is kept in its row."""
    told = " ".join(f"{key}={value}" for key, value in row.size.items())
    print(f"{row.scenario} {told}: round {number + 1}, {row.contender} …", end=" ", file=sys.stderr, flush=True)
    began = time.monotonic()
    gc.collect()
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        try:
            async with asyncio.timeout(ROUND_LIMIT):
                row.rounds.append(await run(Path(folder), **row.size))
        except Absent as error:
            row.absent, row.trouble = True, str(error)
        except Exception as error:  # noqa: BLE001  # the others go on; the row and the exit code tell
            row.trouble = f"{type(error).__name__}: {error}"
    print(row.trouble or f"{time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
