"""Which adsumd leads now, by its tick."""

from __future__ import annotations

import asyncio
import time

import msgspec
from nats.js.api import RawStreamMsg

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_tick
from adsum.events.errors import Undecodable
from adsum.events.signals import Tick, Trouble
from adsum.events.streams import BEATS

from .session import Failed

__all__ = ["LEASE", "Lead", "check_not_led", "leading"]

LEASE = 5.0
"""Seconds without a tick after which there is no leader, and another daemon takes over."""


class Lead(msgspec.Struct, frozen=True):
    """The leader as its last tick tells: `age` in seconds, `leads` whether it ticks now. `leader` is "" once the last
    one gave the lease back. `rejected` counts what it set aside of the log; the others as in Tick."""

    leader: str
    age: float
    leads: bool
    tick: int
    revision: int
    announced: int
    held: tuple[str, ...]
    rejected: int
    reports: int
    probes: int
    unreachable: int


async def leading(broker: Broker) -> tuple[Lead | None, list[Trouble]]:
    """The leader and its troubles, and whether its tick is renewed meanwhile: no clock is compared with another's."""
    began = time.monotonic()
    first = last = await broker.last_message(BEATS, subjects.TICK)
    while time.monotonic() - began < LEASE and not _leads(first, last):
        await asyncio.sleep(0.1)
        last = await broker.last_message(BEATS, subjects.TICK)
    tick = _tick(last)
    if last is None or tick is None:
        return None, []
    leads = _leads(first, last)
    seen = LEASE if _same(first, last) else 0.0
    age = 0.0 if leads or last.time is None else max(seen, time.time() - last.time.timestamp())
    told = (
        tick.number,
        tick.revision,
        tick.announced,
        tick.held,
        tick.rejected,
        tick.reports,
        tick.probes,
        tick.unreachable,
    )
    return Lead(tick.leader, round(age, 1), leads, *told), list(tick.troubles) if leads or not tick.leader else []


def _leads(first: RawStreamMsg | None, last: RawStreamMsg | None) -> bool:
    """Whether `last` was ticked since `first`, and by a daemon that keeps the lease."""
    tick = _tick(last)
    return not _same(first, last) and (tick is None or tick.leader != "")


def _same(one: RawStreamMsg | None, other: RawStreamMsg | None) -> bool:
    return (one and one.time) == (other and other.time)


def _tick(raw: RawStreamMsg | None) -> Tick | None:
    try:
        return decode_tick(raw.data or b"") if raw is not None else None
    except Undecodable:
        return None


async def check_not_led(broker: Broker, doing: str) -> None:
    """Raise Failed while an adsumd leads: what is done to the log would pull it away from under it."""
    last = await broker.last_message(BEATS, subjects.TICK) if await broker.stream_info(BEATS) is not None else None
    tick = _tick(last)
    if last is None or (tick is not None and not tick.leader):
        return  # nobody ever led here, or the last leader gave the lease back
    lead, _ = await leading(broker)
    if lead is not None and lead.leads:
        raise Failed(
            f"an adsumd leads here ({lead.leader}): stop every adsumd of this log, {doing}, then start them again "
            "(the embedded broker of one runs alone with `adsumd --broker-only`)"
        )
