"""From the JSON of a comparison to the points of its curves, as the scenarios declare them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from .compare import Row, load, names
from .scenario import PERCENTILES, Curve, Distribution
from .table import size_text

__all__ = ["Machine", "Measured", "Panel", "Point", "panels", "read"]


class Machine(msgspec.Struct):
    """On what it was measured."""

    processor: str
    cores: int
    commit: str


class Measured(msgspec.Struct):
    """What `compare --json` writes, as far as it is needed here."""

    machine: Machine
    rows: list[Row]


class Point(NamedTuple):
    """`x`: a number of the sizes, or a share; then the median of the rounds, the smallest and the largest."""

    x: float
    median: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class Panel:
    """One pair of axes. `size`: what is the same for all of it; `lines`: by contender, from left to right."""

    curve: Curve | Distribution
    size: str
    lines: dict[str, list[Point]] = field(default_factory=dict)


def read(path: Path) -> Measured:
    """Raises OSError or msgspec.MsgspecError if it is no such file."""
    return msgspec.convert(_without_nulls(msgspec.json.decode(path.read_bytes())), Measured)


def panels(rows: Sequence[Row]) -> tuple[list[Panel], list[str]]:
    """What there is to draw; what is left out, and why."""
    drawn: list[Panel] = []
    left_out: list[str] = []
    for name in dict.fromkeys(row.scenario for row in rows):
        own = [row for row in rows if row.scenario == name]
        if name not in names():
            left_out.append(f"{name}: there is no such scenario here")
        elif not load(name).curves:
            left_out.append(f"{name}: its table says it all")
        else:
            left_out += [
                f"{_where(row)}: {(row.trouble.strip() or 'no round').splitlines()[-1]}"
                for row in own
                if not row.rounds
            ]
            for curve in load(name).curves:
                drawn += _panels(own, curve, left_out)
    return drawn, left_out


def _panels(rows: Sequence[Row], curve: Curve | Distribution, left_out: list[str]) -> list[Panel]:
    """One for each of the sizes; with a Curve, sizes that differ in its `x` alone share one."""
    made: dict[str, Panel] = {}
    for row in rows:
        if isinstance(curve, Curve):
            size = size_text({key: value for key, value in row.size.items() if key != curve.x})
            wanted = {row.size[curve.x]: curve.y} if curve.x in row.size else {}
        else:
            size, wanted = size_text(row.size), {share: name for name, share in PERCENTILES.items()}
        panel = made.setdefault(size, Panel(curve, size))
        for x, name in wanted.items():
            figure = row.figure(name)
            if figure is not None and figure[0] > 0:
                panel.lines.setdefault(row.contender, []).append(Point(x, *figure))
            elif figure is not None:
                left_out.append(f"{_where(row)}: {figure[0]:,.6g} {curve.label} have no place on a logarithmic axis")
    for panel in made.values():
        for line in panel.lines.values():
            line.sort()
        if not _is_curve(panel):
            where = ", ".join(part for part in (rows[0].scenario, panel.size) if part)
            left_out.append(f"{where}: {curve.title}: a curve needs figures of two sizes or more")
    return [panel for panel in made.values() if _is_curve(panel)]


def _is_curve(panel: Panel) -> bool:
    return len({point.x for line in panel.lines.values() for point in line}) > 1


def _where(row: Row) -> str:
    return f"{row.scenario}, {size_text(row.size)}, {row.contender}"


def _without_nulls(told: Any) -> Any:
    """JSON has no NaN: a figure that is none is null there, and missing here."""
    if isinstance(told, dict):
        return {key: _without_nulls(value) for key, value in told.items() if value is not None}
    return [_without_nulls(value) for value in told] if isinstance(told, list) else told
