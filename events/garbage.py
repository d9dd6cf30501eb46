"""Keeping Python's cyclic garbage collector out of where it costs more than the work itself."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused_gc"]


@contextmanager
def paused_gc() -> Iterator[None]:
    """No cyclic garbage collection inside, for bulk work of a bounded time.

    Every few hundred new objects it walks others, in the end all that there are, though next to none of them form
    cycles. Reference counting goes on. Where two of these overlap, the first that was entered ends the pause.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
