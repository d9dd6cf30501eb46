"""What a test sees of a whole registry: changes and ticks as they come, the log, and whether a catalog is its fold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

import msgspec
from nats.aio.msg import Msg

from adsum.clients import Registration, Registry
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event, decode_tick, decode_topology, encode
from adsum.events.lifecycle import Event, Expired, Lapsed, Resumed
from adsum.events.names import Key
from adsum.events.reader import Message, StreamReader
from adsum.events.signals import Departed, Instance, Tick, Topology
from adsum.events.streams import BEATS, EVENTS
from adsum.projector.databases import open_catalog
from adsum.projector.fold import Batch, fold_batch
from tests.daemons import Service, topology
from tests.making import description, key, registered
from tests.waiting import until

T = TypeVar("T")


@asynccontextmanager
async def heard(bus: Broker, subject: str, read: Callable[[bytes], T]) -> AsyncIterator[list[T]]:
    """All that is said on a subject while the block runs, as it comes; also what a stream refuses to store."""
    said: list[T] = []

    async def take(message: Msg) -> None:
        said.append(read(message.data))

    subscription = await bus.subscribe(subject, take)
    try:
        yield said
    finally:
        await bus.unsubscribe(subscription)


def changes_heard(bus: Broker) -> AbstractAsyncContextManager[list[Topology]]:
    """Every state that was stored in ADSUM_TOPOLOGY, as the broker republishes it."""
    return heard(bus, subjects.changes(), decode_topology)


def ticks_heard(bus: Broker) -> AbstractAsyncContextManager[list[Tick]]:
    """Every tick that somebody tried to publish."""
    return heard(bus, subjects.TICK, decode_tick)


def that_change_nothing(changes: Sequence[Topology]) -> list[tuple[Topology, Topology]]:
    """Pairs (the one before, a later one of the same instance) that say the same, or go back in the log."""
    last: dict[Key, Topology] = {}
    idle = []
    for told in changes:
        before = last.get(told.key)
        if before is not None and not _is_news(before, told):
            idle.append((before, told))
        last[told.key] = told
    return idle


def _is_news(before: Topology, told: Topology) -> bool:
    if (told.epoch, told.revision) <= (before.epoch, before.revision):
        return False
    return msgspec.structs.replace(before, revision=told.revision) != told


@asynccontextmanager
async def fleet(
    registry: Registry, size: int, service: str = "orders", heartbeat: float = 0.3, ttl: float = 1.5, first: int = 0
) -> AsyncIterator[list[Registration]]:
    """So many instances of a service that live and beat for as long as the block runs."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                registry.register(service, id=f"{service}-{n}", port=8000 + n, heartbeat=heartbeat, ttl=ttl, wait=30)
            )
            for n in range(first, first + size)
        ]


async def an_instance_dies(bus: Broker, name: str, ttl: float = 1.5, seconds: float = 30) -> None:
    """Register one that never beats again, and wait until it is gone: the reaper judges, and two TTLs have passed."""
    mute = Service(bus, key(name, "mute"), heartbeat=ttl / 3, ttl=ttl)
    await mute.register()
    await until(lambda: topology(bus, mute.key), lambda seen: isinstance(seen, Departed), seconds)


async def whole_log(bus: Broker) -> list[Message]:
    """Every message of the log."""
    found: list[Message] = []
    async with StreamReader(bus, EVENTS) as reader:
        while messages := await reader.to_end():
            found += messages
    return found


async def flood(bus: Broker, count: int, service: str = "flood") -> list[str]:
    """Register so many at once, none of which is missed for minutes; the ids of the events, all acknowledged."""
    said = description(heartbeat=60, ttl=600)
    ids, sent = [], []
    for n in range(count):
        event = registered(said)
        headers = {"Nats-Msg-Id": event.id, "Nats-Expected-Last-Subject-Sequence": "0"}
        ids.append(event.id)
        sent.append(await bus.store_later(EVENTS, subjects.event(key(f"f-{n}", service)), encode(event), headers))
    await asyncio.gather(*sent)
    return ids


async def said_of(bus: Broker, service: str) -> list[tuple[Key, Event]]:
    """Every event of a service, in the order of the log."""
    messages = await whole_log(bus)
    said = [(subjects.key_of(message.subject), decode_event(message.data)) for message in messages]
    return [(of, event) for of, event in said if of.service == service]


async def verdicts_on(bus: Broker, service: str) -> list[tuple[Key, Event]]:
    """Every event of a service that a reaper said."""
    return [(of, event) for of, event in await said_of(bus, service) if isinstance(event, Lapsed | Resumed | Expired)]


async def last_tick(bus: Broker) -> Tick | None:
    """The last tick that stands."""
    raw = await bus.last_message(BEATS, subjects.TICK)
    return decode_tick(raw.data or b"") if raw is not None else None


async def all_is_folded(bus: Broker, seconds: float = 30) -> None:
    """Wait until the leader has folded what is the log's end now."""
    info = await bus.stream_info(EVENTS)
    assert info is not None
    end = info.state.last_seq
    reached = lambda tick: tick is not None and tick.revision >= end  # noqa: E731
    await until(lambda: last_tick(bus), reached, seconds)


async def refold(bus: Broker) -> Batch:
    """All that the log says, folded from nothing. Each event stands there once, and can be read."""
    folded = fold_batch({}, await whole_log(bus))
    ids = [entry.event.id for entry in folded.entries]
    assert len(set(ids)) == len(ids), [entry for entry in folded.entries if ids.count(entry.event.id) > 1]
    assert folded.rejected == (), folded.rejected
    return folded


async def check_catalog(bus: Broker, dsn: str, acknowledged: Collection[str] = ()) -> None:
    """A catalog that no daemon writes any more is what the log folds to, no event of it left out.

    `acknowledged` are ids of events that must be in the log.
    """
    folded = await refold(bus)
    ids = {entry.event.id for entry in folded.entries}
    assert set(acknowledged) <= ids, set(acknowledged) - ids
    catalog = open_catalog(dsn)
    await catalog.open()
    try:
        checkpoint = await catalog.checkpoint()
        assert checkpoint is not None
        assert (checkpoint.sequence, checkpoint.event_id) == (folded.last.sequence, folded.last_id), checkpoint
        held = {record.key: record for record in await catalog.records()}
        wanted = {of: record for of, record in folded.changed.items() if record is not None}
        differ = [(held.get(of), wanted.get(of)) for of in held | wanted if held.get(of) != wanted.get(of)]
        assert differ == [], differ
        assert await catalog.folded(ids) == ids
    finally:
        await catalog.close()


def terms_of_office(ticks: Sequence[Tick]) -> list[str]:
    """Who led, in order, each term once. A tick whose number is not above all before it was refused."""
    terms: list[str] = []
    number = 0
    for tick in ticks:
        if tick.number > number:
            number = tick.number
            if not terms or terms[-1] != tick.leader:
                terms.append(tick.leader)
    return terms


def living(changes: Sequence[Topology]) -> dict[Key, Instance]:
    """Who is there after these changes."""
    last = {told.key: told for told in changes}
    return {of: told for of, told in last.items() if isinstance(told, Instance)}
