"""What is said late: held up in the network for longer than the broker remembers message ids, or said once more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_topology, encode
from adsum.events.ids import new_epoch
from adsum.events.lifecycle import Deregistered, Event, Expired, Lapsed, Registered, Updated
from adsum.events.names import Key
from adsum.events.signals import Instance, Topology
from adsum.events.streams import EVENTS, TOPOLOGY, definitions
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import Service, adsumd, events_of, topology
from tests.making import key
from tests.projector.test_daemon import connected
from tests.proxy import proxy_to
from tests.waiting import until

from .looking import is_gone, is_up, ticks
from .owners import TTL, one, owner

DEDUPE_WINDOW = 0.5
"""Seconds for which the log's stream remembers message ids here; adsum's own streams do for 120."""


@pytest.fixture
async def bus(nats: EmbeddedBroker) -> AsyncIterator[Broker]:
    """A connection to a broker whose log forgets message ids soon."""
    broker = await connected(nats.url)
    for stream in definitions():
        if stream.name == EVENTS:
            stream.metadata = {"adsum-epoch": new_epoch()}
            stream.duplicate_window = DEDUPE_WINDOW
        await broker.create_stream(stream)
    yield broker
    await broker.close()


async def beyond_the_window(bus: Broker) -> None:
    """Wait until the log has forgotten the id of what was said before."""
    await asyncio.sleep(2 * DEDUPE_WINDOW)  # the broker tells nobody when it forgets


async def say_again(bus: Broker, of: Key, word: Event, headers: dict[str, str]) -> int:
    """Store an event once more, whatever was said since; its sequence."""
    return await bus.store(EVENTS, subjects.event(of), encode(word), headers)


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(2 * DEDUPE_WINDOW, id="short"),
        pytest.param(180.0, id="three-minutes", marks=[pytest.mark.long, pytest.mark.timeout(400)]),
    ],
)
async def test_row_19_publishes_of_a_process_that_was_cut_off(
    tmp_path: Path, nats: EmbeddedBroker, bus: Broker, seconds: float
) -> None:
    """An update and a registration that reach the broker only after a successor registered change nothing: the
    successor stands, and who was late is told so.
    """
    async with (
        adsumd(tmp_path / "data", "--nats", nats.url),
        proxy_to(nats.url) as one_way,
        proxy_to(nats.url) as other_way,
        owner(one_way.url, one("updates"), ping=600) as updating,
    ):
        await updating.reaches("updates", "registered")
        one_way.blackhole("up")
        updating.tell("updates", "update", weight=2)
        other_way.hold_at(b'"type":"registered"')
        async with owner(other_way.url, one("registers"), ping=600) as registering:
            await until(other_way.holds)
            await until(lambda: topology(bus, key("updates")), is_gone)
            async with owner(nats.url, one("updates", weight=7), one("registers", weight=7)) as successor:
                terms = {id: await successor.reaches(id, "registered") for id in ("updates", "registers")}
                await registering.logs("trying again")  # it knows that the first try may have arrived
                await asyncio.sleep(seconds)  # the cut lasts longer than the window
                assert one_way.holds()
                assert other_way.holds()
                one_way.heal()
                other_way.heal()
                await updating.reaches("updates", "superseded", 30)
                await registering.reaches("registers", "superseded", 30)
                await ticks(bus, 2)
                for id, term in terms.items():
                    seen = await until(lambda id=id: topology(bus, key(id)), is_up)
                    assert isinstance(seen, Instance)
                    assert (seen.term, seen.weight) == (term, 7.0)
                    said = await events_of(bus, key(id))
                    assert said[-1].term == term
                    assert len({word.id for word in said}) == len(said)
                    assert successor.states(id)[-1] == ("registered", term)


@pytest.mark.parametrize("dsn", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
async def test_row_19_events_that_are_said_once_more(
    tmp_path: Path, nats: EmbeddedBroker, bus: Broker, catalog: tuple[str, ...]
) -> None:
    """An event id counts once, for ever: all events of two lives stored again, after the broker forgot their ids,
    change neither who is there nor what is told of it, and nobody is superseded by them.
    """
    a = key("a")
    async with adsumd(tmp_path / "data", "--nats", nats.url, *catalog) as daemon:
        async with owner(nats.url, one("a", weight=1)) as first:
            await first.reaches("a", "registered")
            await first.leave()
        async with owner(nats.url, one("a", weight=2)) as second:
            term = await second.reaches("a", "registered")
            second.tell("a", "update", weight=3)
            await until(lambda: topology(bus, a), lambda seen: isinstance(seen, Instance) and seen.weight == 3)
            before, said = await topology(bus, a), await events_of(bus, a)
            assert [type(word) for word in said] == [Registered, Deregistered, Registered, Updated]
            await beyond_the_window(bus)
            again = [
                await bus.store(EVENTS, subjects.event(a), encode(word), {"Nats-Msg-Id": word.id}) for word in said
            ]
            again += [await bus.store(EVENTS, subjects.event(a), encode(word), {}) for word in reversed(said)]
            assert again == list(range(5, 13)), "the broker took them all once more"
            await until(lambda: daemon.stderr.count("was folded before"), lambda count: count == len(again))
            await ticks(bus, 3)
            assert await topology(bus, a) == before
            assert second.states("a")[-1] == ("registered", term)
            assert len(await events_of(bus, a)) == len(said) + len(again), "nobody said anything more"


async def test_row_19_a_verdict_that_arrives_late(tmp_path: Path, nats: EmbeddedBroker, bus: Broker) -> None:
    """An Expired that was published before a successor registered, and arrives after it, buries nobody."""
    a = key("a")
    async with proxy_to(nats.url) as proxy, adsumd(tmp_path / "data", "--nats", proxy.url):
        service = Service(bus, a, ttl=TTL)
        await service.register()
        old = service.term
        proxy.hold_at(b'"type":"expired"')
        await until(proxy.holds)
        assert [type(word) for word in await events_of(bus, a)] == [Registered, Lapsed]
        await service.register()
        async with service.beating():
            proxy.heal()
            seen = await until(lambda: topology(bus, a), is_up)
            assert seen is not None
            assert seen.term == service.term != old
            await ticks(bus, 3)
            assert is_up(await topology(bus, a))
            assert [type(word) for word in await events_of(bus, a)] == [Registered, Lapsed, Registered]
        assert not any(isinstance(word, Expired) for word in await events_of(bus, a))


@pytest.mark.long
async def test_row_19_topology_messages_that_arrive_late(tmp_path: Path, nats: EmbeddedBroker, bus: Broker) -> None:
    """What a leader that was cut off had announced arrives after its successor's news, and is told to nobody."""
    a, told = key("a"), list[Topology]()

    async def hear(message: Msg) -> None:
        told.append(decode_topology(message.data))

    await bus.subscribe(subjects.change(a), hear)
    async with (
        proxy_to(nats.url) as proxy,
        adsumd(tmp_path / "one", "--nats", proxy.url) as one_daemon,
        adsumd(tmp_path / "two", "--nats", nats.url) as other_daemon,
    ):
        await until(lambda: one_daemon.stderr, lambda said: "leading from" in said)
        proxy.hold_at(subjects.topology(a).encode())
        service = Service(bus, a, heartbeat=5, ttl=15)
        await service.register()
        await until(proxy.holds)
        await until(lambda: other_daemon.stderr, lambda said: "leading from" in said)
        await until(lambda: topology(bus, a), is_up)
        await service.register()
        await until(lambda: len(told), lambda count: count == 2)
        proxy.heal()
        await until(lambda: one_daemon.stderr, lambda said: "stepping down" in said)
        await ticks(bus, 2)
        assert [one.revision for one in told] == sorted({one.revision for one in told})
        assert [one.term for one in told][-1] == service.term
        assert (await bus.stream_info(TOPOLOGY)).state.last_seq == 2
