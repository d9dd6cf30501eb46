"""kill -9 of registered processes until another process's cache takes them out of rotation.

Each victim is a process of its own that registers, beats, and is killed at a moment of its own between two heartbeats.
Meanwhile many others beat at the same interval, whom nobody may touch. `late` is counted from the victim's last
acknowledged heartbeat plus the TTL, so it is the system's own delay; how long after the kill that is also depends on
the moment of the kill. Polled caches add up to a second.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks import making
from benchmarks.children import Child, Pipe
from benchmarks.observing import observers
from benchmarks.peers import client_of, running
from benchmarks.scenario import Figures, Scenario, against, percentile

SLICES = 50
"""An interval of everybody's heartbeats goes out in so many bursts."""
FILL_LIMIT = 120.0


def options(kind: str, ttl: float) -> dict[str, Any]:
    """ZooKeeper's lease is the session of the client."""
    return {"ttl": ttl} if kind == "zookeeper" else {}


async def live(pipe: Pipe, kind: str, address: str, first: int, count: int, ttl: float, beat: float) -> None:
    """Register so many and beat for ever; tells when each round was acknowledged."""
    async with client_of(kind, address, **options(kind, ttl)) as one:
        await pipe.hear()
        numbers = range(first, first + count)
        await one.register_many(numbers, ttl)
        pipe.tell(time.monotonic())
        slices = min(SLICES, count)
        due = time.monotonic()
        while True:
            for part in range(slices):
                due += beat / slices
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await one.heartbeat(numbers[part::slices])
            if kind != "zookeeper":
                pipe.tell(time.monotonic())


async def measure(kind: str, folder: Path, *, instances: int, victims: int, ttl: float, beat: float) -> Figures:
    """Seconds."""
    dice = random.Random(7)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(running(kind, folder))
        common = {"kind": kind, "address": server.address, "ttl": ttl, "beat": beat}
        crowd = await stack.enter_async_context(Child(live, first=0, count=instances, **common))
        await crowd.ask(timeout=FILL_LIMIT)
        doomed = [
            await stack.enter_async_context(Child(live, first=instances + n, count=1, **common)) for n in range(victims)
        ]
        for child in doomed:
            await child.ask()
        ids = frozenset(making.id_of(instances + n) for n in range(victims))
        [observer] = await stack.enter_async_context(observers(kind, server.address, 1, went=ids))
        observer.tell(6 * ttl + 30)
        ends = sorted((dice.uniform(beat, 2 * beat), n) for n in range(victims))
        began, killed = time.monotonic(), {}
        for at, n in ends:
            await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            killed[making.id_of(instances + n)] = time.monotonic()
            doomed[n].kill()
        _, went, _ = await observer.hear(6 * ttl + 60)
        last = {making.id_of(instances + n): max(child.waiting(), default=0.0) for n, child in enumerate(doomed)}
    after = [went[id] - at for id, at in killed.items() if id in went]
    late = [went[id] - last[id] - ttl for id in killed if id in went and last[id]]
    figures = {
        "after_p50": percentile(after, 0.5),
        "after_max": percentile(after, 1),
        "undetected": victims - len(after),
        "touched": len(went.keys() - killed.keys()),
    }
    if late:
        figures |= {"late_p50": percentile(late, 0.5), "late_max": percentile(late, 1)}
    return figures


SCENARIO = Scenario(
    title="kill -9 → out of rotation",
    columns={
        "after_p50": "after the kill, p50 s",
        "after_max": "max s",
        "late_p50": "after last heartbeat + TTL, p50 s",
        "late_max": "max s ",
        "undetected": "undetected",
        "touched": "living touched",
    },
    contenders=against(measure, "adsum", "etcd", "zookeeper", "redis-notify", "redis-poll", "sqlite", "postgres"),
    sizes={
        "tiny": [{"instances": 20, "victims": 2, "ttl": 2.0, "beat": 0.6}],
        "quick": [{"instances": 1_000, "victims": 8, "ttl": 6.0, "beat": 2.0}],
        "full": [
            {"instances": 1_000, "victims": 30, "ttl": 15.0, "beat": 5.0},
            {"instances": 10_000, "victims": 30, "ttl": 15.0, "beat": 5.0},
            {"instances": 100_000, "victims": 30, "ttl": 60.0, "beat": 20.0},  # to register so many takes over 15 s
        ],
    },
    notes={
        "adsum": "marked stale and out of rotation; it is forgotten after two TTLs",
        "etcd": "its leases are in whole seconds",
        "zookeeper": "when the last ping was is not told; sessions expire in steps of two seconds, after at least four",
        "redis-notify": "the notice comes when the expired key is found and deleted, not when it expires",
    },
    rounds={"tiny": 1, "quick": 1, "full": 3},
)
