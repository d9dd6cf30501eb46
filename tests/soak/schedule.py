"""What goes wrong in one schedule, and when. Pure: the same seed gives the same schedule, which is how one replays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["WORLDS", "Schedule", "Size", "Step", "make_schedule"]

WORLDS = ("sqlite", "postgres", "cluster")
"""One nats-server and two adsumd with a catalog each; the same with a PostgreSQL they share; three nats-servers."""

PROCESS = ("kill", "end", "pause")
NETWORK = ("cut", "drop", "blackhole", "blackhole-up", "blackhole-down", "delay")
NODES = 3


class Size(NamedTuple):
    """How much there is of everything. Seconds."""

    services: int = 12
    watchers: int = 4
    instances: int = 3
    heartbeat: float = 1.0
    ttl: float = 3.0
    gap: float = 2.0
    """Between two faults, on average."""


class Step(NamedTuple):
    """At `at` seconds `fault` happens to `target`, and is undone `seconds` later; a lost process never comes back.

    "leader" and "other" are the adsumd that leads at that time and the one that does not.
    """

    at: float
    fault: str
    target: str
    seconds: float


class Schedule(NamedTuple):
    """All steps, by time."""

    seed: int
    world: str
    size: Size
    seconds: float
    steps: tuple[Step, ...]


def make_schedule(seed: int, seconds: float, size: Size, world: str | None = None) -> Schedule:
    """The schedule of a seed. A world that is not named is chosen by the seed too."""
    chance = random.Random(seed)
    chosen = chance.choices(WORLDS, (4, 3, 2))[0]
    steps = tuple(_steps(chance, seconds, size, world or chosen))
    return Schedule(seed, world or chosen, size, seconds, steps)


def _steps(chance: random.Random, seconds: float, size: Size, world: str) -> Iterator[Step]:
    targets = list(_targets(size, world))
    busy: dict[str, float] = {}
    at = chance.uniform(0.5, 2)
    while at < seconds:
        free = [target for target in targets if busy.get(target[0], 0) <= at]
        if not free:  # all that there is has its fault
            at = min(busy.values())
            continue
        name, faults, _ = chance.choices(free, [weight for _, _, weight in free])[0]
        fault = chance.choice(faults)
        lasts = min(_duration(chance, size.ttl), seconds - at)
        busy[name] = at + lasts + 1
        if fault == "lose":
            busy[name] = seconds
        yield Step(round(at, 2), fault, name, round(lasts, 2))
        if chance.random() > 0.2:  # else the next one comes at the same time
            at += chance.expovariate(1 / size.gap)


def _duration(chance: random.Random, ttl: float) -> float:
    """Blips mostly, at times longer than a TTL, now and then long enough to expire; half a minute at most."""
    low, high = chance.choices(((0.05, 0.8), (0.8, 2.0), (2.0, 4.5)), (5, 3, 2))[0]
    return min(chance.uniform(low, high) * ttl, 30.0)


def _targets(size: Size, world: str) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """(name, what can happen to it, how often)."""
    yield "leader", PROCESS + NETWORK, 3
    yield "other", PROCESS + NETWORK, 1
    for number in range(size.services):
        yield f"service-{number}", (*PROCESS, *NETWORK, "lose"), 5 / size.services
    for number in range(size.watchers):
        yield f"watcher-{number}", PROCESS + NETWORK, 4 / size.watchers
    if world == "cluster":
        for number in range(NODES):
            yield f"node-{number}", PROCESS, 1.2
    else:
        yield "broker", PROCESS, 2
    if world == "postgres":
        yield "database", ("crash", "pause"), 2
