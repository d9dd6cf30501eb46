"""A small disk of a test's own: a tmpfs that is filled up and emptied again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["Disk", "small_disk"]


class Disk:
    """A mounted file system of some megabytes at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    @property
    def free(self) -> int:
        """Bytes that are left."""
        space = os.statvfs(self.folder)
        return space.f_bavail * space.f_bsize

    def fill(self) -> None:
        """Leave nothing."""
        with self._filler.open("ab", buffering=0) as file:
            while self.free:
                file.write(bytes(self.free))

    def empty(self) -> None:
        """Take away what filled it."""
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Disk]:
    """A disk mounted at `folder` for as long as the block runs. Skips the test where nothing may be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a full disk needs one that may be mounted (root, CAP_SYS_ADMIN): {mounted.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
