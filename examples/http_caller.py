"""Calls the service of http_service.py ten times, each time another one who is there, and prints what it says.

python examples/http_caller.py
"""

from __future__ import annotations

import asyncio
import os

import httpx

from adsum.clients import NobodyToCall, Peer, connect, http


async def hello(peer: Peer[httpx.AsyncClient]) -> str:
    """One call."""
    answer = await peer.connection.get("/", timeout=peer.timeout)
    return answer.raise_for_status().text.strip()


async def main() -> None:
    """Who is not reached, or is not who it should be, costs nothing but the next one being asked."""
    async with (
        connect(os.environ.get("ADSUM_NATS")) as registry,
        registry.peers("greeter", dial=http(), verify=True, timeout=5.0) as peers,
    ):
        for _ in range(10):
            try:
                print(await peers.call(hello, idempotent=True), flush=True)
            except NobodyToCall as nobody:
                print(nobody, flush=True)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(main())
