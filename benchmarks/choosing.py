"""What it takes to choose: a pick by each policy, a lookup, and a change of membership until the next pick shows it.

    python -m benchmarks.choosing [--instances 10 100 1000 10000] [--repeat 15] [--json]

A real directory, filled as its subscription would fill it, without a broker: nothing here leaves the process. Time is
that of the processor, so what else runs on the machine counts little. Goals at 100 instances: a pick in 1.4 us by
round robin and 5 us by every other policy, and no more with more instances; a change in 100 us; 700,000 lookups a
second. Prints the median over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from adsum.clients import (
    ConsistentHash,
    Directory,
    LeastOutstanding,
    LowestLatency,
    Outliers,
    PickFirst,
    Policy,
    RandomChoice,
    RoundRobin,
    Selection,
    WeightedRoundRobin,
    ZonePreferring,
)
from adsum.events.description import Endpoint
from adsum.events.signals import Departed, Instance, Topology
from benchmarks.running import report
from tests.peers.talking import unentered

POLICIES: dict[str, Callable[[], Policy]] = {
    "round_robin": RoundRobin,
    "weighted": WeightedRoundRobin,
    "random": RandomChoice,
    "pick_first": PickFirst,
    "outstanding": LeastOutstanding,
    "latency": LowestLatency,
    "hash": ConsistentHash,
    "zone": lambda: ZonePreferring("a"),
}
KEYS = [f"customer-{n}" for n in range(997)]


def instance(n: int, revision: int, **fields: Any) -> Instance:
    """One of a fleet in three zones, of three weights."""
    plain = Instance(
        epoch="e",
        revision=revision,
        namespace="default",
        service="orders",
        id=f"orders-{n}",
        term=f"term-{n}",
        endpoints=(Endpoint(host="10.0.0.1", port=1 + n % 60000, protocol="grpc"),),
        version=f"1.{n % 4}.0",
        zone="abc"[n % 3],
        weight=1.0 + n % 3 / 2,
        metadata={"team": "billing"},
        heartbeat=5.0,
        ttl=15.0,
    )
    return msgspec.structs.replace(plain, **fields)


def directory(count: int) -> Directory:
    """One that is loaded with so many."""
    made = unentered(Outliers())
    made._census.believe("e")
    made._census.begin_load()
    for n in range(count):
        made._census.load(instance(n, n + 1), 0.0)
    made._census.end_load(0.0)
    return made


def hear(directory: Directory, told: Topology) -> None:
    """Take in a change as from the subscription."""
    directory._tell(directory._census.take(told, 0.0))


def select(directory: Directory, policy: Policy) -> Selection:
    """With every filter in use."""
    return directory.select(
        "orders", policy=policy, version=">=1,<2", metadata={"team": "billing"}, endpoint="main", protocol="grpc"
    )


def seconds_each(act: Callable[[], object], repeat: int, enough: float = 0.02) -> float:
    """The median over rounds of at least `enough` seconds."""
    number = 1
    while (took := _timed(act, number)) < enough:
        number = max(2 * number, int(number * enough / max(took, 1e-9)))
    return statistics.median(_timed(act, number) / number for _ in range(repeat))


def _timed(act: Callable[[], object], number: int) -> float:
    rounds = itertools.repeat(None, number)
    began = time.thread_time()
    for _ in rounds:
        act()
    return time.thread_time() - began


def picks(directory: Directory, name: str, repeat: int) -> float:
    """Microseconds a pick, with some calls under way and measured, and one ejected."""
    directory._outliers = Outliers()
    selection = select(directory, POLICIES[name]())
    for n in range(60):
        call = selection.begun(selection.pick(KEYS[n]))
        if n % 3:
            call.succeeded()
    for _ in range(5):
        selection.begun(selection.members[0]).failed()
    keys = itertools.cycle(KEYS).__next__
    return seconds_each(lambda: selection.pick(keys()), repeat) * 1e6


def change(directory: Directory, name: str, revision: Iterator[int], count: int, repeat: int) -> dict[str, float]:
    """Microseconds from hearing of a change to the end of the next pick, by kind of change; medians."""
    selection = select(directory, POLICIES[name]())
    selection.pick("key")
    took: dict[str, list[float]] = {}
    for round_ in range(20 * repeat):
        n = round_ % count
        told: dict[str, Topology] = {
            "critical": instance(n, next(revision), health="critical"),
            "passing": instance(n, next(revision)),
            "leaves": Departed(
                epoch="e", revision=next(revision), namespace="default", service="orders", id=f"orders-{n}", term="t"
            ),
            "joins": instance(n, next(revision)),
            "weighs": instance(n, next(revision), weight=2.5),
        }
        for kind, one in told.items():
            began = time.thread_time()
            hear(directory, one)
            selection.pick("key")
            took.setdefault(kind, []).append(time.thread_time() - began)
    return {kind: statistics.median(times) * 1e6 for kind, times in took.items()}


async def measure(counts: Sequence[int], repeat: int) -> dict[str, float]:
    """All of it."""
    figures: dict[str, float] = {}
    for count in counts:
        held = directory(count)
        figures[f"lookups_per_s_{count}"] = 1 / seconds_each(lambda held=held: held.get("orders", "orders-7"), repeat)
        figures[f"lists_per_s_{count}"] = 1 / seconds_each(lambda held=held: held.instances(routable=True), repeat)
        for name in POLICIES:
            figures[f"pick_{name}_{count}_us"] = picks(held, name, repeat)
    held, revision = directory(100), itertools.count(1 << 40)
    selection = select(held, RoundRobin())
    picked = selection.pick()
    figures["begun_and_succeeded_us"] = seconds_each(lambda: selection.begun(picked).succeeded(), repeat) * 1e6
    for name in POLICIES:
        for kind, took in change(held, name, revision, 100, repeat).items():
            figures[f"change_{name}_{kind}_us"] = took
    await asyncio.sleep(0)
    return figures


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, nargs="+", default=[10, 100, 1000, 10000])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    logging.disable()  # it tells of each ejection
    report(measure(given.instances, given.repeat), given.json)


if __name__ == "__main__":
    main()
