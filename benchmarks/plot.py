"""Draws curves: an SVG file for each plot that the scenarios name, panels side by side.

A line is the median of the rounds, the shade behind it their spread. A system has one colour and a manner of its use
one dash and marker, in all plots. The same figures give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .curves import Machine, Panel
from .scenario import PERCENTILES, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw", "style_of"]

COLOURS = {  # by system; after Okabe and Ito, so that the colour-blind can tell them apart
    "adsum": "#0072B2",
    "etcd": "#D55E00",
    "zookeeper": "#009E73",
    "redis": "#CC79A7",
    "sqlite": "#E69F00",
    "postgres": "#444444",
}
MARKERS = {  # by manner
    "": "o",
    "many": "s",
    "flush": "D",
    "postgres": "^",
    "register": "v",
    "shared": "P",
    "flat-out": "X",
    "channels": "*",
    "raw": "<",
    "notify": ">",
    "poll": "p",
    "always": "d",
}
DASHES = ("-", "--", "-.", ":")
COLUMNS = 3
BEYOND = 3.7
"""Where the largest value stands on the scale of percentiles, on which 99.9 is at 3."""
STYLE = {
    "svg.hashsalt": "adsum",  # else ids are random
    "font.size": 9,
    "axes.titlesize": 9.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
}


def draw(panels: Sequence[Panel], machine: Machine, path: Path) -> None:
    """One file. Raises ImportError without matplotlib, which only this needs."""
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    contenders = sorted({contender for panel in panels for contender in panel.lines}, key=_place)
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        figure = Figure(figsize=(max(6.5, 3.6 * columns), 3 * lines + 1), layout="constrained")
        places = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, panel in zip(places, panels, strict=False):
            _fill(axes, panel)
            axes.set_ylim(*_limits([other for other in panels if other.curve.label == panel.curve.label]))
        for axes in places[len(panels) :]:
            axes.set_visible(False)
        figure.legend(
            handles=[Line2D([], [], label=contender, **style_of(contender)) for contender in contenders],
            loc="outside lower center",
            ncols=max(4, 2 * columns),
            handlelength=3.5,
            frameon=False,
            title=f"{machine.processor}, {machine.cores} cores, adsum {machine.commit}\n"
            "median of the rounds, shaded from the smallest to the largest",
            title_fontsize=7.5,
        )
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def style_of(contender: str) -> dict[str, Any]:
    """How its line looks."""
    system, manner = _place(contender)
    return {
        "color": [*COLOURS.values(), "black"][system],
        "linestyle": DASHES[manner % len(DASHES)],
        "marker": [*MARKERS.values(), "."][manner],
        "markersize": 4.5,
        "linewidth": 2.2 if contender == "adsum" else 1.3,
    }


def _place(contender: str) -> tuple[int, int]:
    """Of its system, of its manner; who is not known comes last."""
    system, _, manner = contender.replace(" ", "-").partition("-")
    return [*COLOURS, system].index(system), [*MARKERS, manner].index(manner)


def _fill(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    for contender in sorted(panel.lines, key=_place, reverse=True):  # the first one lies on top
        points, style = panel.lines[contender], style_of(contender)
        along = [point.x if isinstance(panel.curve, Curve) else _scaled(point.x) for point in points]
        axes.plot(along, [point.median for point in points], clip_on=False, **style)
        spread = [point.smallest for point in points], [point.largest for point in points]
        axes.fill_between(along, *spread, color=style["color"], alpha=0.12, linewidth=0)
    axes.set_title(f"{panel.curve.title}\n{panel.size}".strip())
    axes.set_yscale("log")
    axes.set_ylabel(panel.curve.label)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    if isinstance(panel.curve, Curve):
        axes.set_xscale("log")
        axes.set_xlabel(panel.curve.x)
        sizes = sorted({point.x for line in panel.lines.values() for point in line})
        axes.set_xticks(sizes, [f"{size / 1000:g}k" if size >= 1000 else f"{size:g}" for size in sizes])
    else:
        axes.set_xlabel("percentile")
        axes.set_xticks([_scaled(share) for share in PERCENTILES.values()], [name.strip("p") for name in PERCENTILES])
    axes.minorticks_off()


def _scaled(share: float) -> float:
    """A scale on which each nine takes as much room as the one before."""
    return BEYOND if share == 1 else math.log10(share / (1 - share))


def _limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """The ticks around all medians: 1, 2 and 5 of each decade. Axes of one unit can be compared so."""
    medians = [point.median for panel in panels for line in panel.lines.values() for point in line]
    ticks = [digit * 10.0**power for power in range(-12, 13) for digit in (1, 2, 5)]
    return max(tick for tick in ticks if tick < min(medians)), min(tick for tick in ticks if tick > max(medians))
