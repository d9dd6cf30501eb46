"""One daemon a folder, one daemon a database file: a lock that the system releases when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from .errors import CatalogInUse, Refusal

__all__ = ["FileLock"]


class FileLock:
    """An exclusive lock (flock) on a file of its own, which holds the pid of the process that has it.

    `guarded` is what it protects, as told to people: "the data folder /var/lib/adsum". The file stays when the lock is
    released: removing it would let two processes lock two files of the same name.
    """

    def __init__(self, path: Path, guarded: str) -> None:
        self._path, self._guarded = path, guarded
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting. Raises CatalogInUse where another has it, Refusal where none can be made."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._impossible(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_pid(file)
        except BlockingIOError:
            holder = _pid_in(file)
            os.close(file)
            raise self._taken(holder) from None
        except OSError as error:
            os.close(file)
            raise self._impossible(error) from error
        self._file = file

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk: the pid in the file is only told to people
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def _taken(self, holder: str) -> CatalogInUse:
        return CatalogInUse(
            f"{self._guarded} is in use by process {holder or 'unknown'}",
            "Stop that daemon, or give this one a place of its own.",
        )

    def _impossible(self, error: OSError) -> Refusal:
        folder = self._path.parent
        if not folder.is_dir():
            return Refusal(f"{self._guarded}: there is no folder {folder}", "Create it, or name another place.")
        why = error.strerror or str(error)
        return Refusal(
            f"{self._guarded} cannot be locked: {why} ({self._path})",
            "Let this user write in that folder, on a disk that has room, or name another place.",
        )


def _write_pid(file: int) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, b"%d\n" % os.getpid(), 0)


def _pid_in(file: int) -> str:
    return os.pread(file, 32, 0).decode("ascii", "replace").strip()
