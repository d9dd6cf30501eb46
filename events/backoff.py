"""How long to wait before the next try."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

__all__ = ["backoff"]


def backoff(
    first: float = 0.1, most: float = 5.0, spread: Callable[[float, float], float] = random.uniform
) -> Iterator[float]:
    """Endless delays in seconds: doubling from `first` to `most`, each spread over its upper half.

    The spread keeps a fleet that lost the same server from coming back in step.
    """
    delay = first
    while True:
        yield spread(delay / 2, delay)
        delay = min(delay * 2, most)
