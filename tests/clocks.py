"""Processes whose wall clock is wrong, or is set while they run: libfaketime, from the Debian package `faketime`.

It is preloaded, so it reaches Python and what it starts, but not nats-server, which is a static program: the broker's
clock is always this machine's. The monotonic clock is left alone, as setting the time of a machine does.
"""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

__all__ = ["Clock", "needs_faketime"]

LIBRARY = Path(f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketimeMT.so.1")

needs_faketime = pytest.mark.skipif(
    not LIBRARY.exists(), reason=f"{LIBRARY} is not there: install the Debian package faketime"
)


class Clock:
    """A wall clock, kept in `file`, for the processes that are started with `env`."""

    def __init__(self, file: Path, hours: float = 0.0) -> None:
        self._file = file
        self.set(hours)

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to have this clock."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",  # it is read each time, so that setting it takes effect at once
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, hours: float) -> None:
        """Let it be so many hours ahead of this machine's, or behind it (below 0), from now on."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{hours * 3600:+.0f}s\n")
        new.replace(self._file)
