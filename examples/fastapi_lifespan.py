"""A FastAPI application that registers in its lifespan, and leaves so that no call is lost.

With an adsumd running (`adsumd`):

    python examples/fastapi_lifespan.py 8001

It is the same with uvicorn's own command: `PORT=8001 uvicorn --port 8001 examples.fastapi_lifespan:app`. uvicorn runs
the lifespan before it listens and after it has stopped listening, so `serving` registers it once the port is open, and
keeps SIGTERM from uvicorn until callers have stopped to call. Ctrl-C stops it at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from adsum.clients import Identified, connect, serving


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Registered for as long as the application serves."""
    port, health = int(os.environ["PORT"]), {"health.main": "/health"}
    async with connect(os.environ.get("ADSUM_NATS")) as registry:
        instance = registry.register("shop", host="127.0.0.1", port=port, capabilities=["orders"], metadata=health)
        async with serving(instance) as app.state.me:
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


if __name__ == "__main__":
    os.environ["PORT"] = sys.argv[1]
    uvicorn.run(app, port=int(sys.argv[1]))
