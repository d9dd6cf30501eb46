"""Choosing whom to call, in one process. adsum's lookups and picks do not leave it; a peer without a cache is asked.

A pick is round robin among those that are routable, a lookup one instance by its id. A peer is asked for one instance
by its key, one request after another, and 32 at the same time.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

from benchmarks import making
from benchmarks.children import Child, Pipe
from benchmarks.choosing import seconds_each
from benchmarks.filling import filled
from benchmarks.peers import Client, client_of, running
from benchmarks.scenario import Figures, Scenario, against

AT_ONCE = 32
REPEAT = 9


async def ask(pipe: Pipe, kind: str, address: str, count: int, seconds: float) -> None:
    """Ask for so long: one after another, then at the same time."""
    async with client_of(kind, address) as one:
        figures = {"one_after_another": await asked(one, count, seconds, 1)}
        figures["lookups"] = await asked(one, count, seconds, AT_ONCE)
        pipe.tell(figures)
        await pipe.hear()


async def asked(one: Client, count: int, seconds: float, width: int) -> float:
    """Lookups a second, so many at the same time."""
    numbers, began = itertools.cycle(range(count)), time.monotonic()

    async def worker() -> int:
        answers = 0
        while time.monotonic() < began + seconds:
            if await one.ask(next(numbers)) is None:
                raise RuntimeError("an instance is missing")
            answers += 1
        return answers

    answers = sum(await asyncio.gather(*(worker() for _ in range(width))))
    return answers / (time.monotonic() - began)


async def pick(pipe: Pipe, address: str, count: int) -> None:
    """In a directory; time is that of the processor."""
    async with client_of("adsum", address) as one, one.registry.directory(making.SERVICE, wait=120) as directory:
        chosen, id = directory.select(making.SERVICE), making.id_of(count // 2)
        chosen.pick()
        picks = 1 / seconds_each(chosen.pick, REPEAT)
        lookups = 1 / seconds_each(lambda: directory.get(making.SERVICE, id), REPEAT)
        pipe.tell({"picks": picks, "lookups": lookups})
        await pipe.hear()


async def measure(kind: str, folder: Path, *, instances: int, seconds: float) -> Figures:
    """A second."""
    async with running(kind, folder) as server, filled(kind, server, instances):
        common = {"address": server.address, "count": instances}
        asker = Child(pick, **common) if kind == "adsum" else Child(ask, kind=kind, seconds=seconds, **common)
        async with asker as child:
            figures: Figures = await child.hear()
    return figures


SCENARIO = Scenario(
    title="lookups and picks in a process",
    columns={"picks": "picks/s", "lookups": "lookups/s", "one_after_another": "lookups/s, one after another"},
    contenders=against(measure, "adsum", "etcd", "zookeeper", "redis-poll", "sqlite", "postgres"),
    sizes={
        "tiny": [{"instances": 20, "seconds": 0.2}],
        "quick": [{"instances": 100, "seconds": 1.0}],
        "full": [{"instances": count, "seconds": 3.0} for count in (100, 1_000, 10_000)],
    },
    notes={"adsum": "in this process's memory; every policy at every size is in `python -m benchmarks.choosing`"},
)
