"""Figures as text: a table a scenario, for a terminal or a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .compare import Row, load
from .peers import KINDS

__all__ = ["size_text", "table"]

PLAIN_FROM = 100


def table(name: str, rows: Sequence[Row]) -> str:
    """Markdown, aligned; below it what has to be known of each contender."""
    scenario = load(name)
    shown = {key: text for key, text in scenario.columns.items() if any(row.figure(key) for row in rows)}
    shown = shown or dict(scenario.columns)
    lines = [["size", "contender", *shown.values()]]
    for row in rows:
        if row.rounds:
            lines.append([size_text(row.size), row.contender, *(_cell(row, key) for key in shown)])
        else:
            trouble = f"{'absent' if row.absent else 'failed'}: {row.trouble.strip().splitlines()[-1][:140]}"
            lines.append([size_text(row.size), row.contender, trouble, *([""] * (len(shown) - 1))])
    rounds = max((len(row.rounds) for row in rows), default=0)
    spread = f" (median of {rounds} rounds, smallest … largest)" if rounds > 1 else ""
    notes = [f"* {one}: {_note(one, scenario.notes)}" for one in dict.fromkeys(row.contender for row in rows)]
    return "\n".join([f"## {name}: {scenario.title}{spread}", "", *_aligned(lines), "", *notes, ""])


def _note(contender: str, notes: Mapping[str, str]) -> str:
    kind = KINDS[contender].note if contender in KINDS else ""
    return "; ".join(part for part in (kind, notes.get(contender, "")) if part)


def size_text(size: Mapping[str, Any]) -> str:
    """Its fields, on one line."""
    return ", ".join(
        f"{key} {value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else f"{key} {value}"
        for key, value in size.items()
    )


def _cell(row: Row, key: str) -> str:
    figure = row.figure(key)
    if figure is None:
        return "-"
    median, smallest, largest = map(_number, figure)
    return median if smallest == largest else f"{median} ({smallest} … {largest})"


def _number(value: float) -> str:
    """Three digits that count."""
    if value == 0 or math.isnan(value):
        return "0" if value == 0 else "-"
    if abs(value) >= PLAIN_FROM:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    told = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    ruled = [told[0], ["-" * width for width in widths], *told[1:]]
    return [f"| {' | '.join(line)} |" for line in ruled]
