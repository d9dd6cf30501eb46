"""One change to many caches: when the first, the median and the last of them showed it, from the call that changed it.

Each cache is what the system's client offers as one, with a connection of its own, all of them in two processes. Ten
instances are registered, one of them changes again and again. So the client's side of all caches shares two cores with
the servers, which is most of what the last one waits for.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial
from pathlib import Path

from benchmarks.children import Child
from benchmarks.crowd import changed, crowds, looked, opened, speak
from benchmarks.peers import running
from benchmarks.scenario import Curve, Figures, Scenario

PROCESSES = 2
INSTANCES = 10
PATIENCE = 30.0
SETTLE = 2.0
BETWEEN = 0.2


async def measure(
    kind: str, folder: Path, *, caches: int, changes: int, writer: str = "", shared: bool = False
) -> Figures:
    """Milliseconds, medians over the changes; bytes of the broker's memory a cache."""
    writer = writer or kind
    async with (
        running(kind, folder) as server,
        Child(speak, kind=writer, address=server.address, count=INSTANCES) as speaker,
        crowds(kind, server.address, caches, PROCESSES, shared) as children,
    ):
        await speaker.hear()
        await asyncio.sleep(SETTLE)
        empty = server.memory_of_broker()
        began = time.monotonic()
        await opened(children)
        open_s = time.monotonic() - began
        await asyncio.sleep(SETTLE)
        full = server.memory_of_broker()
        used, (_, caches_used) = sum(server.cpu().values()), await looked(children)
        seen = []
        for number in range(changes):
            seen.append(await changed(speaker, children, f"3.{number}.0", PATIENCE))
            await asyncio.sleep(BETWEEN)
        spent, (_, caches_spent) = sum(server.cpu().values()) - used, await looked(children)
    whole = [one for one in seen if one]
    return {
        "open_s": open_s,
        "first": statistics.median(one[0] for one in whole) * 1000,
        "median": statistics.median(statistics.median(one) for one in whole) * 1000,
        "last": statistics.median(one[-1] for one in whole) * 1000,
        "worst": max(one[-1] for one in whole) * 1000,
        "unseen": sum(caches - len(one) for one in seen),
        "bytes_each": (full - empty) / caches,
        "server_cpu_ms": spent / changes * 1000,
        "cache_cpu_us": (caches_spent - caches_used) / changes / caches * 1e6,
    }


SCENARIO = Scenario(
    title="one change to many caches",
    columns={
        "open_s": "all caches complete after s",
        "first": "first ms",
        "median": "median ms",
        "last": "last ms",
        "worst": "worst last ms",
        "unseen": "never seen",
        "bytes_each": "broker bytes a cache",
        "server_cpu_ms": "servers' CPU ms a change",
        "cache_cpu_us": "a cache's CPU µs a change",
    },
    contenders={
        "adsum": partial(measure, "adsum", writer="adsum-register"),
        "adsum-shared": partial(measure, "adsum", writer="adsum-register", shared=True),
        "etcd": partial(measure, "etcd"),
        "etcd-channels": partial(measure, "etcd-channels", shared=True),
        "zookeeper-raw": partial(measure, "zookeeper-raw", writer="zookeeper"),
        "redis-notify": partial(measure, "redis-notify"),
    },
    sizes={
        "tiny": [{"caches": 10, "changes": 3}],
        "quick": [{"caches": 100, "changes": 10}, {"caches": 1_000, "changes": 10}],
        "full": [{"caches": count, "changes": 20} for count in (100, 1_000, 5_000)],
    },
    notes={
        "adsum": "its owner updates it: through log, fold and catalog; a directory and a connection a cache",
        "adsum-shared": "a directory a cache, all over one connection a process",
        "etcd": "a connection and a watch a cache",
        "etcd-channels": "a watch a cache, all over 4 connections a process, which is what costs etcd least",
        "zookeeper-raw": "a session a cache that watches the one node, without kazoo, whose threads take seconds",
        "redis-notify": "every cache fetches the value itself",
    },
    rounds={"tiny": 1, "quick": 2, "full": 3},
    curves=[
        Curve("fanout", f"the {which} cache shows a change", "caches", which, "ms")
        for which in ("first", "median", "last")
    ],
)
