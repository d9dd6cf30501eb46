"""A FastAPI application that registers in its lifespan, and leaves so that no call is lost.

With an adsumd running (`adsumd`):

    python examples/fastapi_lifespan.py 8001

uvicorn runs the lifespan before it listens and after it has stopped listening. So the socket is opened first, where
callers wait for a moment, and the server drains before it closes that.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from adsum.clients import Identified, connect

LINGER = 1.0
"""Seconds for which it takes calls after it has drained: somebody may have picked it a moment before."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Registered for as long as the application runs."""
    async with (
        connect(os.environ.get("ADSUM_NATS")) as registry,
        registry.register(
            "shop", host="127.0.0.1", port=app.state.port, capabilities=["orders"], metadata={"health.main": "/health"}
        ) as me,
    ):
        app.state.me = me
        yield


app = FastAPI(lifespan=lifespan)
app.add_middleware(Identified, who=lambda: app.state.me.key)


@app.get("/health")
async def health() -> dict[str, str]:
    """What adsumd asks when a caller reports that it cannot be reached."""
    return {"id": app.state.me.id}


@app.get("/orders/{number}")
async def order(number: int) -> dict[str, Any]:
    """An order, and who told of it."""
    return {"number": number, "by": app.state.me.id}


class Server(uvicorn.Server):
    """Drains before it stops to listen."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """On Ctrl-C or SIGTERM."""
        await app.state.me.drain("stopped")
        await asyncio.sleep(LINGER)
        await super().shutdown(sockets)


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    app.state.port = listener.getsockname()[1]
    Server(uvicorn.Config(app)).run(sockets=[listener])
