"""A process of a soak that is started again whenever it ends, as a service manager would."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from adsum.projector.embedded import die_with_parent
from tests.soak.recording import Recorder

__all__ = ["Program", "python"]

AGAIN = 1.0
END_LIMIT = 30.0


class Program:
    """`start` makes a process of it. Whoever kills it says so, and lets it come back with `start`."""

    def __init__(self, name: str, begin: Callable[[], Awaitable[asyncio.subprocess.Process]], told: Recorder) -> None:
        self.name, self._begin, self._recorder = name, begin, told
        self._process: asyncio.subprocess.Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self.ended_by_itself = 0

    @property
    def runs(self) -> bool:
        """Whether it is there (a paused one is)."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it, and keep it running."""
        self._process = await self._begin()
        self._keeping = asyncio.create_task(self._keep(self._process), name=self.name)

    async def kill(self) -> None:
        """SIGKILL; it does not come back by itself."""
        await self._end(signal.SIGKILL)

    async def end(self) -> None:
        """SIGTERM, and SIGKILL if it does not end for it; it does not come back by itself."""
        await self._end(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP or SIGCONT, if it runs."""
        if self.runs:
            self._process_of().send_signal(number)

    def tell(self, word: str) -> None:
        """A line on its standard input, if it runs."""
        stdin = self._process.stdin if self._process is not None and self.runs else None
        if stdin is not None and not stdin.is_closing():
            stdin.write(word.encode() + b"\n")

    async def _end(self, number: signal.Signals) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if not self.runs:
            return
        process = self._process_of()
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(END_LIMIT):
                await process.wait()
        except TimeoutError:
            self._recorder.write("hangs", process=self.name)
            process.kill()
            await process.wait()

    async def _keep(self, process: asyncio.subprocess.Process) -> None:
        while True:
            code = await process.wait()
            self.ended_by_itself += 1
            self._recorder.write("ended", process=self.name, code=code)
            await asyncio.sleep(AGAIN)
            self._process = process = await self._begin()

    def _process_of(self) -> asyncio.subprocess.Process:
        assert self._process is not None, f"{self.name} was never started"
        return self._process


def python(
    module: str, arguments: Sequence[str], log: Path, *, strict: bool
) -> Callable[[], Awaitable[asyncio.subprocess.Process]]:
    """What runs a module of the tests; its errors are added to `log`. `strict`: a warning is an error."""
    more = {"PYTHONWARNINGS": "error"} if strict else {}

    async def begin() -> asyncio.subprocess.Process:
        with log.open("ab") as errors:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env={**os.environ, **more},
                preexec_fn=die_with_parent(signal.SIGKILL),
            )

    return begin
