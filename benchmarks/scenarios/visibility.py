"""From the call that registers until another process's cache shows it, at a steady rate.

One process registers, whenever it is time for the next and whether or not the one before was acknowledged; another
holds a cache. Nothing else is registered. Polled caches are read once a second, so they cannot be faster than that.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from benchmarks import making
from benchmarks.children import Child, Pipe
from benchmarks.observing import observers
from benchmarks.peers import client_of, running
from benchmarks.scenario import Distribution, Figures, Scenario, against, percentiles

TTL = 60.0
WARM = 50
SETTLE = 1.0
PATIENCE = 30.0


async def speak(pipe: Pipe, kind: str, address: str, rate: float, count: int) -> None:
    """When each call began, by id; the first WARM instances are registered before."""
    async with client_of(kind, address) as one:
        for number in range(WARM):
            await one.register(number, TTL)
        pipe.tell()
        await pipe.hear()
        began: dict[str, float] = {}

        async def register(number: int) -> None:
            began[making.id_of(number)] = time.monotonic()
            await one.register(number, TTL)

        start = time.monotonic() + 0.1
        async with asyncio.TaskGroup() as tasks:
            for place in range(count):
                await asyncio.sleep(max(0.0, start + place / rate - time.monotonic()))
                tasks.create_task(register(WARM + place))
        pipe.tell(began)
        await pipe.hear()


async def measure(kind: str, folder: Path, *, rate: float, seconds: float) -> Figures:
    """Latencies in milliseconds; CPU seconds of the servers and of the cache per 1,000 registrations."""
    count = int(rate * seconds)
    async with running(kind, folder) as server:
        address = server.address
        async with Child(speak, kind=kind, address=address, rate=rate, count=count) as speaker:
            await speaker.hear()
            async with observers(kind, address, 1, came=count) as [observer]:
                await asyncio.sleep(SETTLE)
                used = server.cpu()
                observer.tell(seconds + PATIENCE)
                began = await speaker.ask()
                seen, _, cpu = await observer.hear()
                spent = sum(server.cpu().values()) - sum(used.values())
    delays = [1000 * (seen[id] - at) for id, at in began.items() if id in seen]
    return {
        **percentiles(delays),
        "unseen": count - len(delays),
        "server_cpu": spent / count * 1000,
        "cache_cpu": cpu / count * 1000,
    }


SCENARIO = Scenario(
    title="register → visible in another process's cache",
    columns={
        "p50": "p50 ms",
        "p99": "p99 ms",
        "max": "max ms",
        "unseen": "never seen",
        "server_cpu": "server CPU s / 1,000",
        "cache_cpu": "cache CPU s / 1,000",
    },
    contenders=against(
        measure,
        *("adsum", "adsum-postgres", "adsum-register", "etcd", "zookeeper"),
        *("redis-notify", "redis-poll", "sqlite", "postgres"),
    ),
    sizes={
        "tiny": [{"rate": 50.0, "seconds": 1.0}],
        "quick": [{"rate": 100.0, "seconds": 6.0}],
        "full": [{"rate": rate, "seconds": 20.0} for rate in (10.0, 100.0, 1000.0)],
    },
    notes={
        "adsum": "a log, a catalog and a history are written on the way",
        "etcd": "two requests, the lease and the key",
    },
    curves=[Distribution("visibility", "register → visible in another cache", "ms")],
)
