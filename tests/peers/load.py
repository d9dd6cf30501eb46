"""Steady load on a service, which records each of its calls: half of them may be done twice, and half may not.

`python -m tests.peers.load BROKER NAME RATE`: so many calls a second until SIGTERM, then it waits for those under way.
A line of JSON a call on standard output, once it has ended.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from typing import Any

import httpx
import msgspec

from adsum.clients import Peer, Peers, connect, http
from tests.peers.deployed import SERVICE

WORK = (5, 20, 100, 500)
"""Milliseconds that calls take."""


class Call(msgspec.Struct):
    """One call and how it ended; moments of the machine's monotonic clock."""

    id: str
    idempotent: bool
    began: float
    ended: float = 0.0
    answered: str = ""
    """By whom."""
    error: str = ""


async def one(peers: Peers[httpx.AsyncClient], call: Call) -> None:
    """Make it and tell of it."""

    async def ask(peer: Peer[httpx.AsyncClient]) -> str:
        answer = await peer.connection.post(f"/{call.id}/{random.choice(WORK)}")
        return answer.raise_for_status().text

    try:
        call.answered = await peers.call(ask, idempotent=call.idempotent)
    except Exception as error:  # noqa: BLE001  # whatever it is, the test judges
        call.error = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    call.ended = time.monotonic()
    print(msgspec.json.encode(call).decode(), flush=True)


async def main(broker: str, name: str, rate: str) -> None:
    """Call until told to stop."""
    stopped, under_way, number = asyncio.Event(), set[asyncio.Task[Any]](), 0
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with connect(broker) as registry, registry.peers(SERVICE, dial=http()) as peers:
        while not stopped.is_set():
            idempotent = random.random() < 0.5
            call = Call(f"{name}-{number}-{'twice' if idempotent else 'once'}", idempotent, time.monotonic())
            under_way.add(asyncio.create_task(one(peers, call)))
            number += 1
            await asyncio.sleep(random.expovariate(float(rate)))
        await asyncio.gather(*under_way)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
