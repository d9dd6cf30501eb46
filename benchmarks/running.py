"""A real adsumd for a benchmark, as a process of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from adsum.projector.embedded import die_with_parent

__all__ = ["adsumd", "report", "start"]


async def start(folder: Path, *arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    """(the process, its broker's URL), once it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "adsum.projector.main",
        "--data",
        str(folder / "data"),
        *(() if "--nats" in arguments else ("--listen", "127.0.0.1:0")),
        "--log-level",
        "warning",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent(signal.SIGTERM),  # also of a benchmark that is killed
    )
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    if not line.startswith("adsumd ready:"):
        raise RuntimeError(f"adsumd did not start: {line!r}")
    return process, dict(part.split("=", 1) for part in line.split()[2:])["nats"]


@asynccontextmanager
async def adsumd(folder: Path, *arguments: str) -> AsyncIterator[str]:
    """The URL of the broker of an adsumd that runs for as long as the block."""
    process, url = await start(folder, *arguments)
    try:
        yield url
    finally:
        process.terminate()
        await process.wait()


def report(measuring: Coroutine[Any, Any, dict[str, float]], as_json: bool) -> None:
    """Run a measurement under uvloop and print its figures, a line each or as one JSON object."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(measuring)
    if as_json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:28} {figure:,.3f}")
