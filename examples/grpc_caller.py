"""Sends words to the service of grpc_service.py, each to another one who is there, and prints what comes back.

python examples/grpc_caller.py one two three
"""

from __future__ import annotations

import asyncio
import os
import sys

from grpc.aio import Channel

from adsum.clients import Peer, connect, grpc


async def main(*words: str) -> None:
    """Who is not reached, or is not who it should be, costs nothing but the next one being asked."""
    async with (
        connect(os.environ.get("ADSUM_NATS")) as registry,
        registry.peers("text", dial=grpc(), verify=True, timeout=5.0) as peers,
    ):
        for word in words:

            async def upper(peer: Peer[Channel], word: str = word) -> bytes:
                call = peer.connection.unary_unary("/example.Text/Upper")  # with generated code: a stub's method
                return bytes(await call(word.encode(), timeout=peer.timeout))

            print((await peers.call(upper, idempotent=True)).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
