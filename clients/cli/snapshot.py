"""What the topology stream says at this moment."""

from __future__ import annotations

from collections.abc import Iterable

from adsum.clients.loading import Loading
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.names import Key
from adsum.events.reader import ReaderLost
from adsum.events.signals import Instance, Topology
from adsum.events.streams import read_epoch

__all__ = ["snapshot"]

TRIES = 3


async def snapshot(broker: Broker, namespace: str = "*", service: str = "*") -> list[Instance]:
    """The instances that are there, sorted by namespace, service and id. Raises BrokerUnavailable, BrokerRefused."""
    epoch = await read_epoch(broker)  # says what to do where there is none
    for _ in range(TRIES - 1):
        try:
            return await _read(broker, epoch, namespace, service)
        except ReaderLost:
            continue
    return await _read(broker, epoch, namespace, service)


async def _read(broker: Broker, epoch: str, namespace: str, service: str) -> list[Instance]:
    states: dict[Key, Topology] = {}

    def take(told: Iterable[Topology]) -> None:
        for state in told:
            known = states.get(state.key)
            if known is None or (known.epoch, known.revision) <= (state.epoch, state.revision):
                states[state.key] = state

    await Loading(broker).read(lambda: [subjects.topologies(namespace, service)], take)
    present = [state for state in states.values() if isinstance(state, Instance) and state.epoch <= epoch]
    return sorted(present, key=lambda instance: instance.key)
