"""A service over HTTP, an ASGI application on uvicorn: it says hello. Start two or three, each at its own port.

With an adsumd running (`adsumd`):

    python examples/http_service.py 8001
    python examples/http_caller.py

On Ctrl-C or SIGTERM it leaves so that no call is lost: it drains, goes on for a moment, finishes, says goodbye.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from adsum.clients import Identified, connect


class Server(uvicorn.Server):
    """One that leaves signals to us: uvicorn's own ends the process before it could say goodbye."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


async def main(port: int) -> None:
    """Listen, register, serve until told to stop."""
    stop = asyncio.Event()
    for sent in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sent, stop.set)
    async with connect(os.environ.get("ADSUM_NATS")) as registry:
        registration = registry.register("greeter", host="127.0.0.1", port=port, metadata={"health.main": "/health"})

        async def hello(scope: dict[str, Any], receive: Any, send: Any) -> None:
            body = b"" if scope["path"] == "/health" else f"hello from {registration.id}\n".encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})

        app = Identified(hello, who=lambda: registration.key)  # so that callers can verify that it is itself
        server = Server(uvicorn.Config(app, lifespan="off", log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[socket.create_server(("127.0.0.1", port))]))
        async with registration as me:  # only now: who hears of it can call it
            print(f"{me.id} serves at 127.0.0.1:{port}", flush=True)
            await stop.wait()
            await me.drain("stopped")  # it still takes calls meanwhile, of those who had just picked it
            server.should_exit = True  # finishes the calls in flight
            await serving


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
