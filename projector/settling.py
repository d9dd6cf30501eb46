"""What is told of the fold (the topology, a cache) held against it. What is on its way is no difference: look again.

Each look is older than the fold that it is held against, so a state is behind, or it is wrong. One that is behind has
come on, or is another one, some looks later; what stays as it is for SETTLED is a difference. A state that claims a
revision at which the fold made another one of it is wrong at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_topology
from adsum.events.errors import BrokerUnavailable, Undecodable
from adsum.events.names import Key
from adsum.events.reader import ReaderLost, StreamReader
from adsum.events.signals import Departed, Instance, Topology
from adsum.events.streams import TOPOLOGY
from adsum.events.tools import Difference, Part

__all__ = ["Place", "Seen", "compare_states", "look_at_topology", "settled"]

SETTLED = 20.0
"""Seconds: above what a change of leader takes, of adsumd and of the broker's."""
BETWEEN = 0.5
PATIENCE = 30.0

Seen: TypeAlias = Mapping[Key, Topology | str]
"""What is told of each instance; text where that cannot be read."""


class Place(NamedTuple):
    """Where a difference is and what is told there; the same Place some looks later: nothing has moved."""

    key: Key
    epoch: str
    revision: int
    certain: bool


def compare_states(
    part: Part, seen: Seen, expected: Mapping[Key, Instance], departed: Mapping[Key, Departed]
) -> dict[Place, Difference]:
    """Every difference between what is told and the fold. `departed`: how those left of whom that is known. Pure."""
    found: dict[Place, Difference] = {}
    for key in sorted(seen.keys() | expected.keys()):
        told, wanted = seen.get(key), expected.get(key) or departed.get(key)
        if isinstance(told, Departed) and (wanted is None or (key in departed and told.epoch != wanted.epoch)):
            continue  # a tombstone of long ago, or of another log
        if told is None and not isinstance(wanted, Instance):
            continue
        if told != wanted:
            found[_place(key, told, wanted)] = _difference(part, key, wanted, told)
    return found


async def settled(look: Callable[[], Awaitable[dict[Place, Difference]]]) -> Difference | None:
    """Look until nothing is left of what was found at first; else the first of it that stayed."""
    deadline = time.monotonic() + SETTLED
    suspects = await look()
    while suspects:
        certain = [difference for place, difference in suspects.items() if place.certain]
        if certain or time.monotonic() > deadline:
            return certain[0] if certain else next(iter(suspects.values()))
        await asyncio.sleep(BETWEEN)
        found = await look()
        suspects = {place: found[place] for place in suspects if place in found}
    return None


async def look_at_topology(broker: Broker) -> dict[Key, Topology | str]:
    """The last message of every subject. Raises BrokerUnavailable, BrokerRefused."""
    while True:
        seen: dict[Key, Topology | str] = {}
        try:
            async with StreamReader(broker, TOPOLOGY) as reader:
                while messages := await reader.to_end():
                    for message in messages:
                        key = subjects.key_of(message.subject)
                        seen[key] = _read(key, message.data)
            return seen
        except (ReaderLost, BrokerUnavailable):
            await broker.ready(PATIENCE)


def _read(key: Key, data: bytes) -> Topology | str:
    try:
        told = decode_topology(data)
    except Undecodable as error:
        return f"what cannot be read: {error}"
    return told if told.key == key else f"what is of another instance, {told.key}"


def _place(key: Key, told: Topology | str | None, wanted: Topology | None) -> Place:
    if told is None or isinstance(told, str):
        return Place(key, "", 0, False)
    same = wanted is not None and (told.epoch, told.revision) == (wanted.epoch, wanted.revision)
    return Place(key, told.epoch, told.revision, same)


def _difference(part: Part, key: Key, wanted: Topology | None, told: Topology | str | None) -> Difference:
    def differs(field: str, expected: str, found: str) -> Difference:
        return Difference(part=part, table="", place=str(key), field=field, expected=expected, found=found)

    if isinstance(told, Instance) and isinstance(wanted, Instance):
        for field in ("epoch", "revision", *wanted.__struct_fields__):
            if getattr(wanted, field) != getattr(told, field):
                return differs(field, _shown(getattr(wanted, field)), _shown(getattr(told, field)))
    return differs("", _standing(wanted), _standing(told))


def _standing(said: Topology | str | None) -> str:
    if said is None:
        return "nobody is there"
    if isinstance(said, str):
        return said
    if isinstance(said, Departed):
        return f"the life {said.term} ended at revision {said.revision} ({said.reason})"
    return f"an instance is there, at revision {said.revision}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
