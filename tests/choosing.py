"""A crowd to choose among, without a directory: its instances, a clock, and selections over them."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from adsum.clients import (
    ConsistentHash,
    LeastOutstanding,
    LowestLatency,
    Outliers,
    Picked,
    PickFirst,
    Policy,
    RandomChoice,
    RoundRobin,
    Selection,
    WeightedRoundRobin,
    ZonePreferring,
)
from adsum.clients.choosing.filters import Filters
from adsum.events.signals import Instance
from tests.clients.announcer import instance

__all__ = ["POLICIES", "Clock", "Crowd", "ids"]

POLICIES: dict[str, Callable[[], Policy]] = {
    "round robin": RoundRobin,
    "weighted": WeightedRoundRobin,
    "random": lambda: RandomChoice(random.Random(1).random),
    "first": PickFirst,
    "outstanding": lambda: LeastOutstanding(random.Random(2).random),
    "latency": lambda: LowestLatency(draw=random.Random(3).random, clock=Clock()),
    "hash": ConsistentHash,
    "zone": lambda: ZonePreferring("here"),
    "zone by hash": lambda: ZonePreferring("here", ConsistentHash),
}


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Crowd:
    """Who is there; every change is a new tuple, as a directory hands it out."""

    def __init__(self, *names: str, **fields: object) -> None:
        self.clock = Clock()
        self.outliers = Outliers(clock=self.clock)
        self.present: tuple[Instance, ...] = ()
        self._revision = 0
        for name in names:
            self.put(name, **fields)

    def read(self) -> tuple[Instance, ...]:
        """As `Directory.instances`."""
        return self.present

    def put(self, id: str, **fields: object) -> Instance:
        """One who joins, or says of itself something else; in its old place, or last."""
        self._revision += 1
        known = {one.id: one for one in self.present}
        before = known.get(id) or instance("orders", id, self._revision)
        known[id] = msgspec.structs.replace(before, revision=self._revision, **fields)
        self.present = tuple(known.values())
        return known[id]

    def leave(self, *gone: str) -> None:
        """Who leaves."""
        self.present = tuple(one for one in self.present if one.id not in gone)

    def select(self, policy: Policy | None = None, *, filters: Filters | None = None, **more: object) -> Selection:
        """A selection over it."""
        policy = policy or RoundRobin()
        return Selection(self.read, "default/orders", filters or Filters(), policy, self.outliers, **more)  # type: ignore[arg-type]

    def fail(self, selection: Selection, id: str, times: int = 5) -> None:
        """Let calls to one fail, whoever would be picked."""
        [picked] = [one for one in selection.members if one.instance.id == id]
        for _ in range(times):
            selection.begun(picked).failed()


def ids(picked: list[Picked] | tuple[Picked, ...]) -> list[str]:
    """Their ids."""
    return [one.instance.id for one in picked]
