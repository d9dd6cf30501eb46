"""A service as it is deployed: uvicorn, registered by its lifespan, which records each call that it gets and does.

`python -m tests.peers.deployed BROKER PORT ID RECORD SETTLE`; a BROKER of "" leaves registering to somebody else.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import uvicorn

from adsum.clients import connect, serving

SERVICE = "orders"


class App:
    """Answers `/CALL/MILLISECONDS` after so long with its id. Its record: "+ CALL" is one it got, "- CALL" one done."""

    def __init__(self, broker: str, port: int, id: str, record: str, settle: float) -> None:
        self.broker, self.port, self.id, self.settle = broker, port, id, settle
        self._record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        _, call, milliseconds = scope["path"].split("/")
        os.write(self._record, f"+ {call}\n".encode())
        await asyncio.sleep(int(milliseconds) / 1000)  # what the call does
        os.write(self._record, f"- {call}\n".encode())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": self.id.encode()})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        async with self._registered():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _registered(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if self.broker:
                registry = await stack.enter_async_context(connect(self.broker))
                me = registry.register(SERVICE, id=self.id, host="127.0.0.1", port=self.port, wait=1.0)
                await stack.enter_async_context(serving(me, settle=self.settle))
            yield


def main(broker: str, port: str, id: str, record: str, settle: str) -> None:
    """Serve until SIGTERM."""
    app = App(broker, int(port), id, record, float(settle))
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
