"""Looking at what stands in the streams, and waiting for observed time to pass."""

from __future__ import annotations

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_heartbeat
from adsum.events.names import Key
from adsum.events.signals import Departed, Instance, Topology
from adsum.events.streams import BEATS
from tests.observing import last_tick
from tests.waiting import until


def is_up(seen: Topology | None) -> bool:
    """Whether an instance is there and up."""
    return isinstance(seen, Instance) and seen.liveness == "up"


def is_gone(seen: Topology | None) -> bool:
    """Whether an instance left."""
    return isinstance(seen, Departed)


async def beats(broker: Broker, wanted: Key, term: str) -> int:
    """The counter of the last heartbeat of a life, 0 if there is none."""
    raw = await broker.last_message(BEATS, subjects.beat(wanted, term))
    return decode_heartbeat(raw.data or b"").counter if raw is not None else 0


async def tick_number(broker: Broker) -> int:
    """The number of the last tick, 0 if there is none."""
    tick = await last_tick(broker)
    return tick.number if tick is not None else 0


async def ticks(broker: Broker, count: int) -> None:
    """Wait until the leader ticked `count` times more: the observed clock went on by about as many seconds."""
    before = await tick_number(broker)
    await until(lambda: tick_number(broker), lambda number: number >= before + count, seconds=3 * count + 20)
