"""How far a long command is: a line on standard error that is written over, in a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from adsum.events.durations import format_duration

__all__ = ["progress", "told_after"]

INTERVAL = 0.2


@contextmanager
def progress(doing: str, total: Callable[[], int] | int | None) -> Iterator[Callable[[int], None]]:
    """Gives what to call with how many of `total` (None: not known) are done; the line goes when the block ends."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    began = time.monotonic()
    shown_at = began

    def tell(done: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if terminal and now - shown_at >= INTERVAL:
            shown_at = now
            of = total() if callable(total) else total
            sys.stderr.write(f"\r\x1b[K{told_after(doing, done, of, now - began)}")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        if terminal and shown_at > began:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def told_after(doing: str, done: int, total: int | None, seconds: float) -> str:
    """The line: what is done, how fast, and how long the rest will take at that rate. Pure."""
    rate = done / seconds if seconds > 0 else 0.0
    line = f"{doing}: {done:,}"
    if total:
        line += f" of {total:,} ({min(100, 100 * done // total)} %)"
    line += f", {rate:,.0f}/s"
    if total and rate and done < total:
        line += f", {format_duration(max(1.0, round((total - done) / rate)))} left"
    return line
