"""The server is stopped and started again with many instances registered: how long until it serves, and memory.

adsum serves once its projector says the first mark that covers all of them, so that caches are proven complete and the
silent are noticed again; a peer, once it answers a read of one of them. Imports and the program's start are in it.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.filling import filled
from benchmarks.peers import Server, client_of, running
from benchmarks.peers.adsum import Client as AdsumClient
from benchmarks.scenario import Curve, Figures, Scenario, against


async def serves(kind: str, server: Server, count: int) -> None:
    """Wait until it does."""
    async with client_of(kind, server.address) as one:
        if isinstance(one, AdsumClient):
            await one.marked(count)
        elif await one.ask(count - 1) is None:
            raise RuntimeError("it has forgotten an instance")


async def measure(kind: str, folder: Path, *, instances: int) -> Figures:
    """Seconds; megabytes, just after the start and before it was stopped."""
    async with running(kind, folder) as server, filled(kind, server, instances):
        before = server.memory()
    began = time.monotonic()
    async with running(kind, folder) as server:
        answers = time.monotonic() - began
        await serves(kind, server, instances)
        took = time.monotonic() - began
        cpu, after = server.cpu(), server.memory()
    return {
        "answers": answers,
        "serves": took,
        "cpu": sum(cpu.values()),
        "cpu_us_each": sum(cpu.values()) * 1e6 / instances,
        **{f"{part}_before": value / 1e6 for part, value in before.items()},
        **{f"{part}_after": value / 1e6 for part, value in after.items()},
    }


SCENARIO = Scenario(
    title="restart of the server, and its memory",
    columns={
        "answers": "answers after s",
        "serves": "serves after s",
        "cpu": "CPU s",
        "projector_before": "projector MB before",
        "projector_after": "after",
        "broker_before": "broker MB before",
        "broker_after": "after ",
        "server_before": "server MB before",
        "server_after": "after  ",
    },
    contenders=against(measure, "adsum", "adsum-postgres", "etcd", "redis-poll"),
    sizes={
        "tiny": [{"instances": 100}],
        "quick": [{"instances": 10_000}],
        "full": [{"instances": 1_000}, {"instances": 10_000}, {"instances": 100_000}],
    },
    notes={"adsum": "serves: caches are proven, the silent are noticed"},
    rounds={"tiny": 1, "quick": 1, "full": 3},
    curves=[Curve("growth", "restart of the server", "instances", "cpu_us_each", "servers' CPU µs an instance")],
)
