"""Many instances beat and nothing changes: what many idle caches cost the servers.

The instances that beat are of another service than the caches follow (that one has ten), because the caches of one
benchmark could not hold them all; for the servers it makes no difference, since nothing is sent to a cache. Memory is
what the servers grew by, resident, from before the caches began. Everybody beats every five seconds.
"""

from __future__ import annotations

import asyncio
import statistics
from functools import partial
from pathlib import Path

from adsum.events.streams import TOPOLOGY
from benchmarks.children import Child, Pipe
from benchmarks.crowd import crowds, looked, opened, speak
from benchmarks.peers import Server, client_of, running
from benchmarks.peers.adsum import Client as AdsumClient
from benchmarks.scenario import Curve, Figures, Scenario

PROCESSES = 2
FOLLOWED = 10
BEAT = 5.0
TTL = 60.0
SLICES = 50
SAMPLES = 5
FILL_LIMIT = 300.0


async def beat(pipe: Pipe, kind: str, address: str, count: int) -> None:
    """Register so many in another service, and beat for ever."""
    async with client_of(kind, address, group="crowd") as one:
        await one.register_many(range(count), TTL)
        pipe.tell()
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            for part in range(SLICES):
                due += BEAT / SLICES
                await asyncio.sleep(max(0.0, due - loop.time()))
                await one.heartbeat(range(part, count, SLICES))


async def memory(server: Server, seconds: float) -> float:
    """The median of some looks; a garbage collector moves it."""
    looks = []
    for _ in range(SAMPLES):
        looks.append(server.memory_of_broker())
        await asyncio.sleep(seconds / SAMPLES)
    return statistics.median(looks)


async def told(kind: str, server: Server) -> int:
    """Messages of adsum's topology so far."""
    if kind != "adsum":
        return 0
    async with client_of(kind, server.address) as one:
        assert isinstance(one, AdsumClient)
        info = await one.registry.broker.stream_info(TOPOLOGY)
    return info.state.last_seq if info is not None else 0


async def measure(
    kind: str, folder: Path, *, instances: int, caches: int, seconds: float, shared: bool = False
) -> Figures:
    """Bytes of the broker's memory a cache; messages; cores."""
    async with (
        running(kind, folder) as server,
        Child(beat, kind=kind, address=server.address, count=instances) as crowd,
        Child(speak, kind=kind, address=server.address, count=FOLLOWED) as speaker,
        crowds(kind, server.address, caches, PROCESSES, shared) as children,
    ):
        await crowd.hear(FILL_LIMIT)
        await speaker.hear()
        await asyncio.sleep(seconds)  # what came of registering is over
        empty = await memory(server, seconds)
        await opened(children)
        await asyncio.sleep(seconds)
        full = await memory(server, seconds)
        before, _ = await looked(children)
        announced, used = await told(kind, server), server.cpu()
        await asyncio.sleep(seconds)
        spent = {part: (now - used[part]) / seconds for part, now in server.cpu().items()}
        figures = {
            "bytes_each": (full - empty) / caches,
            "heard": (await looked(children))[0] - before,
            "servers_cores": sum(spent.values()),
        }
        if kind == "adsum":
            figures |= {"topology": await told(kind, server) - announced}
    return figures


SCENARIO = Scenario(
    title="everybody beats, nothing changes",
    columns={
        "bytes_each": "broker bytes a cache",
        "topology": "topology messages",
        "heard": "changes heard",
        "servers_cores": "servers' cores",
    },
    contenders={
        "adsum": partial(measure, "adsum"),
        "adsum-shared": partial(measure, "adsum", shared=True),
        "etcd": partial(measure, "etcd"),
        "etcd-channels": partial(measure, "etcd-channels", shared=True),
        "redis-notify": partial(measure, "redis-notify"),
    },
    sizes={
        "tiny": [{"instances": 100, "caches": 10, "seconds": 1.0}],
        "quick": [{"instances": 10_000, "caches": 500, "seconds": 6.0}],
        "full": [{"instances": 10_000, "caches": count, "seconds": 15.0} for count in (100, 1_000, 5_000)],
    },
    notes={
        "adsum": "a directory and a connection a cache; every two seconds a mark proves each complete",
        "adsum-shared": "a directory a cache, all over one connection a process",
        "etcd": "a connection and a watch a cache",
        "etcd-channels": "a watch a cache, all over 4 connections a process",
    },
    rounds={"tiny": 1, "quick": 1, "full": 3},
    curves=[Curve("growth", "idle caches", "caches", "bytes_each", "broker bytes a cache")],
)
