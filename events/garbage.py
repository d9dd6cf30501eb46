"""Keeping Python's cyclic garbage collector out of where it costs more than the work itself."""

from __future__ import annotations

import gc

__all__ = ["PausedGC"]


class PausedGC:
    """`with PausedGC():` no cyclic garbage collection inside, for bulk work of a bounded time.

    Every few hundred new objects it walks others, in the end all that there are, though next to none of them form
    cycles. Reference counting goes on. Where two of these overlap, the first that was entered ends the pause.
    """

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._was_on:
            gc.enable()
