"""The data folder: made, locked for one daemon, and what it remembers of that daemon."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adsum.events.ids import new_id

from .errors import Refusal
from .lock import FileLock

__all__ = ["daemon_id", "data_folder"]


@contextmanager
def data_folder(data: Path) -> Iterator[Path]:
    """The folder, made if need be, for as long as the block runs this daemon's alone. Raises CatalogInUse, Refusal."""
    try:
        data.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        what = f"the data folder {str(data)!r} cannot be made: {reason}"
        raise Refusal(what, "Name another with --data DIR.") from None
    lock = FileLock(data / "lock", f"the data folder {data}")
    lock.acquire()
    try:
        yield data
    finally:
        lock.release()


def daemon_id(data: Path) -> str:
    """The name of this folder's daemon: after a restart it is the one of before, and need not wait for its own lease.

    The host is part of it, so that a folder copied to another machine is another daemon's there.
    """
    file = data / "daemon-id"
    try:
        name = file.read_text().strip() if file.exists() else ""
        if not name:  # also where a full disk left the file empty: that name would be everybody's
            name = new_id()
            file.write_text(f"{name}\n")
        return f"{socket.gethostname()}-{name}"
    except OSError as error:
        what = f"the data folder {data} cannot be written: {error.strerror}"
        raise Refusal(what, "Let this user write there, or name another with --data DIR.") from None
