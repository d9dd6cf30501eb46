"""A server as a child of the benchmark, on loopback: started, accounted for, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from adsum.projector.embedded import die_with_parent

__all__ = ["Server", "free_port", "process"]

START_LIMIT = 60.0
STOP_LIMIT = 20.0


class Server:
    """One that runs at `address`. `parts`: its processes by what they do; children of a part count with it."""

    def __init__(self, address: str, parts: Mapping[str, int], folder: Path) -> None:
        self.address, self.folder = address, folder
        self._parts = {name: psutil.Process(pid) for name, pid in parts.items()}

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by part."""
        return {name: sum(map(_cpu, _with_children(one, self._others(name)))) for name, one in self._parts.items()}

    def memory(self) -> dict[str, int]:
        """Bytes by part: resident, or shared in proportion where a part has children."""
        return {name: _memory(_with_children(one, self._others(name))) for name, one in self._parts.items()}

    def memory_of_broker(self) -> int:
        """Bytes of what caches are connected to: the only part of a peer."""
        told = self.memory()
        return told.get("broker", sum(told.values()))

    def _others(self, name: str) -> set[int]:
        return {one.pid for other, one in self._parts.items() if other != name}


def _with_children(process: psutil.Process, but: set[int]) -> list[psutil.Process]:
    return [process, *(child for child in process.children(recursive=True) if child.pid not in but)]


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _memory(processes: Sequence[psutil.Process]) -> int:
    if len(processes) == 1:
        return int(processes[0].memory_info().rss)
    total = 0
    for one in processes:
        try:
            total += one.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@asynccontextmanager
async def process(
    arguments: Sequence[str],
    folder: Path,
    answers: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[int]:
    """The pid of a program that runs in `folder` for as long as the block, from when it `answers`."""
    log = folder / "log"
    child = _start(arguments, folder, log, {**os.environ, **(environment or {})})
    try:
        began = time.monotonic()
        while not await asyncio.to_thread(_true, answers):
            if child.poll() is not None or time.monotonic() - began > START_LIMIT:
                raise RuntimeError(f"{arguments[0]} did not start: {log.read_text(errors='replace')[-2000:]}")
            await asyncio.sleep(0.02)
        yield child.pid
    finally:
        child.terminate()
        try:
            await asyncio.to_thread(child.wait, STOP_LIMIT)
        except subprocess.TimeoutExpired:
            child.kill()
            await asyncio.to_thread(child.wait)


def _start(
    arguments: Sequence[str], folder: Path, log: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )


def _true(answers: Callable[[], bool]) -> bool:
    try:
        return answers()
    except OSError:
        return False
