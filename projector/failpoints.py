"""Named points on the way of a batch, from the log to the topology, at which a test may end the process.

In production nobody listens. A test starts the daemon through a program of its own that sets the hook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

__all__ = ["POINTS", "Point", "listen", "passed"]

Point: TypeAlias = Literal["after fold", "before commit", "after commit", "before announce", "after announce"]
POINTS: tuple[Point, ...] = get_args(Point)

_hook: Callable[[Point], None] | None = None


def listen(hook: Callable[[Point], None]) -> None:
    """Call `hook` whenever a point is passed, in whatever thread passes it."""
    global _hook
    _hook = hook


def passed(point: Point) -> None:
    """The process has come to this point."""
    if _hook is not None:
        _hook(point)
