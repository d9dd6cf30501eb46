"""A burst of registrations from one process until every cache has all of them.

`acknowledged` per second is what the writer saw, `visible` counts until the last cache had the last instance. Each
cache is a process of its own; two cores are shared by all of them, the servers and the writer.
"""

from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path

from benchmarks.children import Child, Pipe
from benchmarks.observing import observers, spent
from benchmarks.peers import Absent, client_of, running
from benchmarks.scenario import Curve, Figures, Scenario, against

TTL = 300.0
PATIENCE, SLOWEST = 30.0, 200.0
"""Seconds that it may take besides, and visible a second at the least; whoever is slower shows less than all."""
PHASES = 1.0
"""A polled cache is met at any moment between two of its reads."""


async def speak(pipe: Pipe, kind: str, address: str, count: int) -> None:
    """(when it began, when all was acknowledged, CPU seconds)."""
    try:
        async with client_of(kind, address) as one:
            pipe.tell()
            await pipe.hear()
            used, began = spent(), time.monotonic()
            await one.register_many(range(count), TTL)
            pipe.tell((began, time.monotonic(), spent() - used))
            await pipe.hear()
    except Absent as error:
        pipe.tell(error)


async def measure(kind: str, folder: Path, *, instances: int, caches: int) -> Figures:
    """Registrations a second; CPU seconds per 1,000."""
    patience = PATIENCE + instances / SLOWEST
    async with running(kind, folder) as server:
        address = server.address
        async with Child(speak, kind=kind, address=address, count=instances) as speaker:
            absent = await speaker.hear()
            if absent is not None:
                raise absent
            async with observers(kind, address, caches, came=instances) as children:
                used = server.cpu()
                for child in children:
                    child.tell(patience)
                await asyncio.sleep(time.monotonic() % PHASES)
                began, acknowledged, speaker_cpu = await speaker.ask(timeout=patience)
                told = [await child.hear(patience + PATIENCE) for child in children]
                spent = {part: seconds - used[part] for part, seconds in server.cpu().items()}
    last = max((max(came.values(), default=math.nan) for came, _, _ in told), default=math.nan)
    thousands = instances / 1000
    return {
        "acknowledged": instances / (acknowledged - began),
        "visible": instances / (last - began),
        "seconds": last - began,
        "unseen": sum(instances - len(came) for came, _, _ in told),
        "server_cpu": sum(spent.values()) / thousands,
        "writer_cpu": speaker_cpu / thousands,
        "cache_cpu": sum(cpu for _, _, cpu in told) / caches / thousands,
        **{f"{part}_cpu": seconds / thousands for part, seconds in spent.items() if part != "server"},
    }


SCENARIO = Scenario(
    title="a burst of registrations until every cache agrees",
    columns={
        "acknowledged": "acknowledged/s",
        "visible": "visible/s",
        "seconds": "all visible s",
        "unseen": "never seen",
        "server_cpu": "servers' CPU s / 1,000",
        "writer_cpu": "writer's",
        "cache_cpu": "a cache's",
    },
    contenders=against(
        measure,
        *("adsum", "adsum-many", "adsum-flush", "adsum-postgres", "etcd", "etcd-channels", "zookeeper"),
        *("redis-notify", "redis-always", "redis-poll", "sqlite", "postgres"),
    ),
    sizes={
        "tiny": [{"instances": 200, "caches": 1}],
        "quick": [{"instances": 10_000, "caches": 1}],
        "full": [
            {"instances": 1_000, "caches": 1},
            {"instances": 10_000, "caches": 1},
            {"instances": 10_000, "caches": 4},
            {"instances": 100_000, "caches": 1},
        ],
    },
    notes={
        "etcd": "256 calls in flight; a lease cannot be granted together with another",
        "sqlite": "500 rows a transaction",
        "postgres": "500 rows a transaction",
    },
    rounds={"tiny": 1, "quick": 3, "full": 3},
    curves=[
        Curve("growth", "burst of registrations", "instances", "server_cpu", "servers' CPU s / 1,000 registrations")
    ],
)
