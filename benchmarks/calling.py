"""What a call to a peer adds to what the protocol takes: a pick, a connection at hand, the bookkeeping.

    python -m benchmarks.calling [--instances 10 100 1000] [--calls 20000] [--json]

A real directory without a broker, and a dialer whose connections do nothing. Goal at 100 instances: 30 us a call.
Medians of the processor's time: `call` one after the other; `at_once` a hundred callers, each a task, for each of
their calls; `bare` the same without peers; `pick` and `told` what the pick and telling how it went have of it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from adsum.clients import Blame, LowestLatency, Peer, Peers, RoundRobin
from adsum.clients.peers import Bounds
from adsum.events.description import Endpoint
from adsum.events.signals import Instance
from benchmarks.choosing import directory, seconds_each
from benchmarks.running import report

ROUNDS = 15
AT_ONCE = 100


class Nothing:
    """A dialer that connects nobody to nothing."""

    async def dial(self, instance: Instance, endpoint: Endpoint) -> str:
        return endpoint.address

    async def close(self, connection: str) -> None:
        return

    async def identify(self, connection: str, instance: Instance, endpoint: Endpoint) -> str | None:
        return None

    def stands(self, connection: str) -> bool:
        return True

    def blame(self, error: Exception) -> Blame:
        return Blame.ANSWERED


async def answer(peer: Peer[str]) -> str:
    """What is called."""
    return peer.connection


async def each(act: Callable[[], Awaitable[object]], calls: int) -> float:
    """Microseconds of one `act`: the median over rounds."""
    took = []
    for _ in range(ROUNDS):
        began = time.thread_time()
        for _ in range(calls // ROUNDS):
            await act()
        took.append((time.thread_time() - began) / (calls // ROUNDS))
    return statistics.median(took) * 1e6


async def at_once(act: Callable[[], Awaitable[object]], calls: int) -> float:
    """Microseconds of one `act`, a hundred of them at once as tasks."""

    async def hundred() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(act())  # type: ignore[arg-type]

    return await each(hundred, max(calls // AT_ONCE, ROUNDS)) / AT_ONCE


async def measure(counts: Sequence[int], calls: int) -> dict[str, float]:
    """All of it."""
    figures: dict[str, float] = {}
    bare: Peer[str] = Peer("", cast(Any, None), cast(Any, None), 1.0)
    figures["bare_at_once_us"] = await at_once(lambda: answer(bare), calls)
    for count in counts:
        for name, policy in (("", RoundRobin), ("latency_", LowestLatency)):
            held = directory(count)
            selection = held.select("orders", policy=policy())
            bounds = Bounds(limit=count)
            peers = Peers(held, selection, Nothing(), cast(Any, None), bounds, own=False, verify=False)
            async with peers:
                for _ in range(20 * count):
                    await peers.call(answer)
                figures[f"call_{name}{count}_us"] = await each(lambda peers=peers: peers.call(answer), calls)
                figures[f"at_once_{name}{count}_us"] = await at_once(lambda peers=peers: peers.call(answer), calls)
                figures[f"pick_{name}{count}_us"] = seconds_each(selection.pick, ROUNDS) * 1e6
                picked = selection.pick()
                told = seconds_each(lambda it=selection, who=picked: it.begun(who).succeeded(), ROUNDS)
                figures[f"told_{name}{count}_us"] = told * 1e6
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    logging.disable()
    report(measure(given.instances, given.calls), given.json)


if __name__ == "__main__":
    main()
