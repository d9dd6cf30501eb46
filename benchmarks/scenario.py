"""What a scenario is: a module of `benchmarks.scenarios` with a SCENARIO, told of in its docstring."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

__all__ = [
    *("PERCENTILES", "Contender", "Curve", "Distribution", "Figures", "Level", "Scenario"),
    *("against", "percentile", "percentiles"),
]

Level: TypeAlias = Literal["tiny", "quick", "full"]
Figures: TypeAlias = dict[str, float]
Contender: TypeAlias = Callable[..., Awaitable[Figures]]
"""Called with a fresh folder and the fields of a size: one round from an empty server to its figures."""

PERCENTILES = {
    "p10": 0.1,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p99.9": 0.999,
    "max": 1.0,
}
"""The figures that tell a distribution, with the share of the values that is not above each."""


@dataclass(frozen=True)
class Curve:
    """A figure against a field of the sizes, where a curve says more than the table.

    `plot`: curves of the same plot, also of other scenarios, stand side by side in one file. `label`: of the y axis.
    """

    plot: str
    title: str
    x: str
    y: str
    label: str


@dataclass(frozen=True)
class Distribution:
    """The figures PERCENTILES against their shares, size by size; the rest as with a Curve."""

    plot: str
    title: str
    label: str


@dataclass(frozen=True)
class Scenario:
    """`columns`: figures that the table shows, with their headings; the JSON has all of them.

    `sizes`: what each contender is run with; several sizes show how a figure grows. `notes`: what differs between the
    contenders here, beyond what is said of their kinds in `benchmarks.peers`. `rounds`: unless the command line says.
    `curves`: what `benchmarks.plot` draws.
    """

    title: str
    columns: Mapping[str, str]
    contenders: Mapping[str, Contender]
    sizes: Mapping[Level, Sequence[Mapping[str, Any]]]
    notes: Mapping[str, str] = field(default_factory=dict)
    rounds: Mapping[Level, int] = field(default_factory=lambda: {"tiny": 1, "quick": 3, "full": 5})
    curves: Sequence[Curve | Distribution] = ()


def against(measure: Callable[..., Awaitable[Figures]], *kinds: str) -> dict[str, Contender]:
    """A contender for each of these kinds: `measure(kind, folder, **size)`."""
    return {kind: partial(measure, kind) for kind in kinds}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not below so large a share of them; nan of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def percentiles(values: Sequence[float]) -> Figures:
    """What a Distribution is drawn from."""
    return {name: percentile(values, share) for name, share in PERCENTILES.items()}
