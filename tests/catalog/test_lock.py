"""One daemon a folder, one daemon a database file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from adsum.projector.errors import CatalogInUse, Refusal
from adsum.projector.lock import FileLock

_HOLDER = """
import sys
from pathlib import Path
from adsum.projector.lock import FileLock
FileLock(Path(sys.argv[1]), "the data folder").acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_holder_is_told_who_has_it_and_what_to_do(tmp_path: Path) -> None:
    first, second = (FileLock(tmp_path / "lock", "the data folder x") for _ in range(2))
    first.acquire()
    with pytest.raises(CatalogInUse, match=rf"the data folder x is in use by process {os.getpid()}\. Stop that daemon"):
        second.acquire()
    first.release()
    first.release()
    second.acquire()
    second.release()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "the data folder")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CatalogInUse, match=f"process {holder.pid}"):
            lock.acquire()
        holder.kill()
    lock.acquire()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    lock.release()
    assert (tmp_path / "lock").read_text() == ""


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"there is no folder .*nowhere") as refused:
        FileLock(tmp_path / "nowhere" / "lock", "the catalog x").acquire()
    assert refused.value.remedy.startswith("Create it")


def test_a_folder_that_may_not_be_written_in() -> None:
    with pytest.raises(Refusal, match="the catalog x cannot be locked: "):
        FileLock(Path("/sys/adsum.lock"), "the catalog x").acquire()  # refuses even root
