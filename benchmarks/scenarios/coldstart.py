"""A cache's cold start: a new process connects and reads all instances into memory, decoded.

Imports, and a first connection that is closed again, come before. All decode the same bytes with the same decoder into
the same type. Memory is what the process has grown by, resident, once it holds them all and garbage is collected. Each
round is a new server, filled, and some starts one after another; a figure is the median of those.
"""

from __future__ import annotations

import gc
import statistics
import time
from pathlib import Path

import psutil

from benchmarks.children import Child, Pipe
from benchmarks.filling import filled
from benchmarks.observing import spent
from benchmarks.peers import client_of, running
from benchmarks.scenario import Curve, Figures, Scenario, against

STARTS = 3


async def begin(pipe: Pipe, kind: str, address: str, expected: int) -> None:
    """(seconds to connect, to load, CPU seconds, bytes grown)."""
    async with client_of(kind, address):
        pass
    gc.collect()
    process = psutil.Process()
    small, used, began = process.memory_info().rss, spent(), time.monotonic()
    async with client_of(kind, address) as one:
        connected = time.monotonic()
        instances = await one.load()
        loaded = time.monotonic()
        cpu = spent() - used
        if len(instances) != expected:
            raise RuntimeError(f"{len(instances):,} of {expected:,} loaded")
        gc.collect()
        pipe.tell((connected - began, loaded - connected, cpu, process.memory_info().rss - small))
        await pipe.hear()


async def start(kind: str, address: str, expected: int) -> tuple[float, float, float, int]:
    """One start in a process of its own."""
    async with Child(begin, kind=kind, address=address, expected=expected) as child:
        told: tuple[float, float, float, int] = await child.hear()
    return told


async def measure(kind: str, folder: Path, *, instances: int) -> Figures:
    """Milliseconds; bytes an instance."""
    async with running(kind, folder) as server, filled(kind, server, instances):
        found = [await start(kind, server.address, instances) for _ in range(STARTS)]
    connect, load, cpu, memory = (statistics.median(column) for column in zip(*found, strict=True))
    return {
        "connect_ms": connect * 1000,
        "load_ms": load * 1000,
        "cpu_ms": cpu * 1000,
        "us_each": load * 1e6 / instances,
        "bytes_each": memory / instances,
    }


SCENARIO = Scenario(
    title="cold start of a cache, decoded",
    columns={
        "connect_ms": "connect ms",
        "load_ms": "load ms",
        "us_each": "µs an instance",
        "cpu_ms": "client CPU ms",
        "bytes_each": "bytes an instance",
    },
    contenders=against(measure, "adsum", "etcd", "zookeeper", "redis-poll", "sqlite", "postgres"),
    sizes={
        "tiny": [{"instances": 100}],
        "quick": [{"instances": 1_000}, {"instances": 10_000}],
        "full": [{"instances": 1_000}, {"instances": 10_000}, {"instances": 100_000}],
    },
    notes={"adsum": "also subscribed, so it is current from then on", "etcd": "the load alone, no watch yet"},
    rounds={"tiny": 1, "quick": 2, "full": 3},
    curves=[Curve("growth", "cold start of a cache", "instances", "us_each", "µs an instance")],
)
