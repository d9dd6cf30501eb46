"""Caches in a process of its own, to be stopped and killed: `python -m tests.watchers URL CONNECTIONS CACHES READERS`.

Each connection has that many directories of the whole namespace; READERS read the topology and never end. It says
"ready" once all are loaded; for each line it is sent it tells how its directories are.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from adsum.clients import Directory, connect
from adsum.events.reader import StreamReader
from adsum.events.streams import TOPOLOGY
from tests.house.tree import ROOT

__all__ = ["Watchers"]


class Watchers:
    """Such a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, url: str, connections: int = 1, caches: int = 1, readers: int = 0) -> Watchers:
        """Start one; it loads behind."""
        counts = map(str, (connections, caches, readers))
        command = (sys.executable, "-m", "tests.watchers", url, *counts)
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=ROOT))

    async def ready(self) -> None:
        """Wait until all its directories are loaded."""
        assert await self._line(60) == b"ready\n"

    async def look(self, seconds: float = 20) -> dict[str, Any]:
        """states: of its directories; shown: what all of them show (None if they differ), as id -> revision."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        return dict(msgspec.json.decode(await self._line(seconds)))

    def send(self, sent: signal.Signals) -> None:
        """SIGSTOP, SIGCONT."""
        self.process.send_signal(sent)

    async def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def _line(self, seconds: float) -> bytes:
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            return await self.process.stdout.readline()


def _told(directories: list[Directory]) -> dict[str, object]:
    states = [directory.state for directory in directories]
    sets = [{instance.id: instance.revision for instance in directory.instances()} for directory in directories]
    same = all(one == sets[0] for one in sets)
    return {"states": sorted(set(states)), "shown": sets[0] if same else None}


async def _main(url: str, connections: int, caches: int, readers: int) -> None:
    async with AsyncExitStack() as stack:
        directories: list[Directory] = []
        for _ in range(connections):
            registry = await stack.enter_async_context(connect(url))
            await registry.broker.ready(30)
            here = [registry.directory(wait=30) for _ in range(caches)]
            directories += await asyncio.gather(*map(stack.enter_async_context, here))
        for _ in range(readers):
            await stack.enter_async_context(StreamReader(registry.broker, TOPOLOGY))
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(msgspec.json.encode(_told(directories)).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], *map(int, sys.argv[2:])))
