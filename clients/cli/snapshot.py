"""What the topology stream says at this moment."""

from __future__ import annotations

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_topology
from adsum.events.errors import Undecodable
from adsum.events.names import Key
from adsum.events.reader import Message, ReaderLost, StreamReader
from adsum.events.signals import Instance, Topology
from adsum.events.streams import TOPOLOGY, read_epoch

from .output import note

__all__ = ["snapshot"]

TRIES = 3


async def snapshot(broker: Broker, namespace: str = "*", service: str = "*") -> list[Instance]:
    """The instances that are there, sorted by namespace, service and id. Raises BrokerUnavailable, BrokerRefused."""
    await read_epoch(broker)
    for _ in range(TRIES - 1):
        try:
            return await _read(broker, namespace, service)
        except ReaderLost:
            continue
    return await _read(broker, namespace, service)


async def _read(broker: Broker, namespace: str, service: str) -> list[Instance]:
    states: dict[Key, Topology] = {}
    async with StreamReader(broker, TOPOLOGY, [subjects.topologies(namespace, service)]) as reader:
        while batch := await reader.to_end():
            for message in batch:
                _take(states, message)
    present = [state for state in states.values() if isinstance(state, Instance)]
    return sorted(present, key=lambda instance: instance.key)


def _take(states: dict[Key, Topology], message: Message) -> None:
    try:
        state = decode_topology(message.data)
    except Undecodable as error:
        note(f"the state at {message.subject} cannot be read: {error}")
        return
    known = states.get(state.key)
    if known is None or (known.epoch, known.revision) <= (state.epoch, state.revision):
        states[state.key] = state
