"""A service over HTTP in a process of its own: uvicorn, which says in each answer who it is.

`python -m tests.peers.web PORT KEY [CERTIFICATE PRIVATE-KEY]`; `Web` runs it. A line a request on standard output,
with its authorization if it has any.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from adsum.clients import Identified
from tests.cli.programs import Running, free_port, start

__all__ = ["Web", "web"]


class Web:
    """A server at one port, which is ended and started again, also as somebody else."""

    def __init__(self, key: str, *certificate: str) -> None:
        self.key, self.port, self._certificate = key, free_port(), certificate
        self._running: Running | None = None

    @property
    def heard(self) -> list[str]:
        """The requests that its process has had."""
        return [line for line in self._running.out if line.startswith("/")] if self._running is not None else []

    async def start(self, key: str | None = None) -> None:
        """Begin to listen."""
        command = [
            sys.executable,
            "-m",
            "tests.peers.web",
            str(self.port),
            self.key if key is None else key,
            *self._certificate,
        ]
        self._running = await start(command, dict(os.environ))
        await self._running.prints("listening", 20)

    async def kill(self) -> None:
        """End it with -9."""
        if self._running is not None:
            running, self._running = self._running, None
            await running.stop()


@asynccontextmanager
async def web(*keys: str) -> AsyncIterator[list[Web]]:
    """Some that listen for as long as the block lasts, unless the test ends them."""
    made = [Web(key) for key in keys]
    try:
        await asyncio.gather(*(one.start() for one in made))
        yield made
    finally:
        for one in made:
            await one.kill()


ill = False


async def app(scope: Any, receive: Any, send: Any) -> None:
    """/hang never answers, /late does after a second, /fail fails; /health is empty, and 503 from /ill to /well.

    All else names its process.
    """
    global ill
    if scope["type"] != "http":
        return
    path = scope["path"]
    print(path, *(value.decode() for name, value in scope["headers"] if name == b"authorization"), flush=True)
    if path == "/hang":
        await asyncio.Event().wait()
    if path == "/late":
        await asyncio.sleep(1)  # longer than the callers of this path wait
    ill = path == "/ill" or (ill and path != "/well")
    failing = path == "/fail" or (ill and path == "/health")
    answer = b"" if path == "/health" else str(os.getpid()).encode()
    await send({"type": "http.response.start", "status": 503 if failing else 200, "headers": []})
    await send({"type": "http.response.body", "body": answer})


def main(port: int, key: str, *certificate: str) -> None:
    """Serve for ever."""

    class Server(uvicorn.Server):
        async def startup(self, *arguments: Any, **more: Any) -> None:
            await super().startup(*arguments, **more)
            print("listening", flush=True)

    served = Identified(app, who=lambda: key or None)
    tls = dict(zip(("ssl_certfile", "ssl_keyfile"), certificate, strict=False))
    Server(uvicorn.Config(served, port=port, log_level="warning", lifespan="off", timeout_keep_alive=60, **tls)).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
