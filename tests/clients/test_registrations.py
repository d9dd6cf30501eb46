"""Many registrations of one process on a real broker: batches, and that none holds up, loses or doubles another."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adsum.clients import (
    BrokerRefused,
    BrokerSettings,
    InvalidValue,
    LifeEnded,
    Registration,
    Registrations,
    Registry,
    connect,
)
from adsum.events.altering import change_stream
from adsum.events.broker import Broker
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, Event, Expired
from adsum.events.log import last_word, say
from adsum.events.names import Key
from adsum.events.streams import BEATS, EVENTS, ensure_streams
from adsum.events.together import SharedLog
from adsum.projector.embedded import EmbeddedBroker
from tests.making import OPERATOR, REAPER, key, registered
from tests.observing import said_of, whole_log
from tests.proxy import Proxy, proxy_to
from tests.servers import Server
from tests.unit.samples import SILENCE
from tests.waiting import until

from .announcer import Announcer

BATCH = 1000


def made(registry: Registry, count: int, service: str = "orders", given: bool = True) -> list[Registration]:
    """So many that are not entered yet."""
    return [
        registry.register(service, id=f"o-{n}" if given else None, host="10.0.0.1", port=1 + n, heartbeat=1, ttl=6)
        for n in range(count)
    ]


async def lives(broker: Broker, service: str = "orders") -> dict[Key, list[Event]]:
    """What was said of each instance of a service."""
    found: dict[Key, list[Event]] = {}
    for of, event in await said_of(broker, service):
        found.setdefault(of, []).append(event)
    return found


async def next_word(broker: Broker, of: Key, event: Event) -> None:
    """Say an event after whatever was said last."""
    word = await last_word(broker, of)
    await say(broker, of, event, word.sequence if word else 0)


def kinds(said: dict[Key, list[Event]]) -> set[tuple[str, ...]]:
    """The histories that there are, each a sequence of types."""
    return {tuple(type(event).__name__ for event in events) for events in said.values()}


async def in_batches(broker: Broker) -> int:
    """How many of the log's messages came in a batch."""
    raws = [await broker.message_at(EVENTS, message.sequence) for message in await whole_log(broker)]
    return sum("Nats-Batch-Id" in ((raw and raw.headers) or {}) for raw in raws)


@pytest.mark.parametrize("given", [False, True])
async def test_all_come_beat_and_leave_with_few_tasks(registry: Registry, broker: Broker, given: bool) -> None:
    before = len(asyncio.all_tasks())
    owned = made(registry, 2 * BATCH + 100, given=given)
    async with registry.register_many(owned, wait=60) as orders:
        assert {one.state for one in orders} == {"registered"}
        assert len(asyncio.all_tasks()) - before < 20
        counted = await until(lambda: broker.stream_info(BEATS), lambda info: info.state.messages >= len(owned))
        assert counted.state.messages == len(owned)
    assert {one.state for one in owned} == {"closed"}
    said = await lives(broker)
    assert set(said) == {one.key for one in owned}
    assert kinds(said) == {("Registered", "Deregistered")}
    assert {one.key: one.term for one in owned} == {of: events[0].term for of, events in said.items()}


async def test_what_is_said_together_goes_in_a_batch(registry: Registry, broker: Broker) -> None:
    async with registry.register_many(made(registry, 50)) as orders:
        together = await in_batches(broker)
        assert together > 40  # whose look was answered first may have gone alone
        assert await next(iter(orders)).health("warning")
        assert await in_batches(broker) == together


async def test_each_is_a_registration_as_any_other(registry: Registry, announcer: Announcer, broker: Broker) -> None:
    async with registry.register_many(made(registry, 20)) as orders:
        one, other, *_ = orders
        assert await one.update(version="2")
        assert await other.drain(told=0)
        orders.add(more := registry.register("payments", id="p", host="10.0.0.1", port=1))
        await more.registered(10)
        await orders.remove(one)
        assert (one.state, other.state, len(orders)) == ("closed", "registered", 20)
        assert orders.get("orders", other.id) is other
        assert orders.get("orders", one.id) is None
    said = await lives(broker)
    assert kinds({one.key: said[one.key]}) == {("Registered", "Updated", "Deregistered")}
    assert kinds({other.key: said[other.key]}) == {("Registered", "ModeChanged", "Deregistered")}
    assert kinds(await lives(broker, "payments")) == {("Registered", "Deregistered")}


async def test_what_became_of_each_is_told_of_each(registry: Registry, broker: Broker) -> None:
    """One removed by an operator, one taken over, one expired, which comes back; all others live on."""
    async with registry.register_many(made(registry, 30)) as orders:
        removed, taken, lost, *others = orders
        terms = {one.key: one.term for one in orders}
        await next_word(broker, removed.key, Deregistered(id=new_id(), term=removed.term, by=OPERATOR))
        await next_word(broker, taken.key, registered())
        await next_word(broker, lost.key, Expired(id=new_id(), term=lost.term, by=REAPER, evidence=SILENCE))
        for one in (removed, taken, lost):
            one.owned.reconciler.reconnected()
        await until(lambda: lost.term != terms[lost.key] and lost.state == "registered")
        ended = [one async for one in _first(orders, 2)]
        assert {one.key: one.state for one in ended} == {removed.key: "removed", taken.key: "superseded"}
        with pytest.raises(LifeEnded):
            await removed.update(version="2")
        assert {(one.state, one.term == terms[one.key]) for one in others} == {("registered", True)}


async def _first(orders: Registrations, count: int) -> AsyncIterator[Registration]:
    async with asyncio.timeout(10):
        async for one in orders.ended():
            yield one
            count -= 1
            if not count:
                return


async def test_a_condition_that_does_not_hold_holds_up_nobody(
    registry: Registry, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id is taken between the look and the batch: the batch is refused, and each is said by itself, once."""
    store_together, rival, batches = registry.broker.store_together, registered(), []

    async def after_a_rival(stream: str, messages: list[tuple[str, bytes, dict[str, str]]]) -> asyncio.Future[int]:
        if not batches:
            await say(broker, key("o-7"), rival, 0)
        batches.append(len(messages))
        return await store_together(stream, messages)

    monkeypatch.setattr(registry.broker, "store_together", after_a_rival)
    async with registry.register_many(made(registry, 300), wait=30) as orders:
        assert {one.state for one in orders} == {"registered"}
        said = await lives(broker)
        taken = said.pop(key("o-7"))
        assert [event.id == rival.id for event in taken] == [True, False]
        assert kinds(said) == {("Registered",)}
        assert max(batches) > 100


async def test_a_log_that_takes_no_batches(registry: Registry, broker: Broker) -> None:
    await change_stream(broker, EVENTS, lambda found: found.update(allow_atomic=False))
    async with registry.register_many(made(registry, 300), wait=30) as orders:
        assert {one.state for one in orders} == {"registered"}
    assert kinds(await lives(broker)) == {("Registered", "Deregistered")}


@asynccontextmanager
async def behind_a_proxy(nats: EmbeddedBroker) -> AsyncIterator[tuple[Proxy, Registry]]:
    """A process whose connection can be cut."""
    async with proxy_to(nats.url) as proxy, connect(proxy.url, name="tested", ping=0.5) as registry:
        await registry.broker.ready(10)
        yield proxy, registry


async def test_an_acknowledgement_that_is_lost(nats: EmbeddedBroker, broker: Broker) -> None:
    """The batch is stored, and its authors do not hear of it: each finds its own word."""
    async with behind_a_proxy(nats) as (proxy, registry):
        proxy.hold_at(b"Nats-Batch-Commit")
        async with registry.register_many(made(registry, 300, given=False), wait=0) as orders:
            await until(proxy.holds)
            proxy.blackhole("down")
            proxy.release("up")
            await until(lambda: broker.stream_info(EVENTS), lambda info: info.state.messages == 300)
            proxy.drop()
            proxy.heal()
            await orders.registered(30)
            assert kinds(await lives(broker)) == {("Registered",)}
            assert {one.key: one.term for one in orders} == {
                of: events[0].term for of, events in (await lives(broker)).items()
            }


async def test_a_connection_that_is_lost_in_the_middle_of_a_batch(nats: EmbeddedBroker, broker: Broker) -> None:
    """Nothing of it is stored, and all are said anew, once."""
    async with behind_a_proxy(nats) as (proxy, registry):
        proxy.hold_at(b"Nats-Batch-Sequence: 100\r")
        async with registry.register_many(made(registry, 300, given=False), wait=0) as orders:
            await until(proxy.holds)
            proxy.drop()
            proxy.heal()
            await orders.registered(30)
            assert kinds(await lives(broker)) == {("Registered",)}
            assert len(await lives(broker)) == 300


TWO_USERS = """
authorization {
  users: [
    { user: all, password: x }
    { user: some, password: x, permissions: {
      publish: ["adsum.v1.default.event.orders.*", "adsum.v1.default.beat.>", "$JS.API.>"], subscribe: ">"
    } }
  ]
}
"""


async def test_an_instance_that_one_may_not_speak_for_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in the batch it stands: as its last word nobody answers for the whole of it."""
    monkeypatch.setattr("adsum.events.together.REQUEST_TIMEOUT", 1.0)
    server = await Server(tmp_path, TWO_USERS).start()
    bus = Broker.open(BrokerSettings(url=server.url, user="all", password="x"), "test")
    try:
        await bus.ready(10)
        await ensure_streams(bus)
        async with connect(BrokerSettings(url=server.url, user="some", password="x")) as registry:
            await registry.broker.ready(10)
            shared = SharedLog(registry.broker)
            saying = [shared.say(of, registered(), 0) for of in (key("x"), key("y"), key("last", "billing"))]
            told = await asyncio.gather(*saying, return_exceptions=True)
            assert [type(one) for one in told] == [int, int, BrokerRefused]
            owned = made(registry, 100)
            owned.insert(50, registry.register("billing", id="first", port=1, host="10.0.0.1"))
            owned.append(registry.register("billing", id="last", port=1, host="10.0.0.1"))
            async with registry.register_many(owned, wait=0) as orders:
                states = {"registered": 100, "registering": 2}
                await until(lambda: Counter(one.state for one in orders), states.__eq__, 30)
                assert kinds(await lives(bus)) == {("Registered",)}
    finally:
        await bus.close()
        await server.stop()


async def test_what_cannot_be(registry: Registry) -> None:
    one, same, other = (registry.register("orders", id=id, port=1) for id in ("a", "a", "b"))
    with pytest.raises(InvalidValue, match="is here already"):
        async with registry.register_many([one, same]):
            pass
    async with other, registry.register_many([]) as orders:
        with pytest.raises(InvalidValue, match="entered"):
            orders.add(other)


async def test_the_garbage_collector_rests_while_all_begin_and_for_a_bounded_time(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adsum.clients.registrations.PAUSED", 0.2)
    store_together, collected = registry.broker.store_together, []

    async def watched(stream: str, messages: list[tuple[str, bytes, dict[str, str]]]) -> asyncio.Future[int]:
        collected.append(gc.isenabled())
        return await store_together(stream, messages)

    monkeypatch.setattr(registry.broker, "store_together", watched)
    async with registry.register_many(made(registry, 100), wait=30):
        assert gc.isenabled()
    assert gc.isenabled()
    assert {*collected} == {False}
    async with connect("nats://127.0.0.1:9") as nowhere:
        entering = asyncio.ensure_future(nowhere.register_many(made(nowhere, 100), wait=30).__aenter__())
        await until(lambda: not gc.isenabled())
        await until(gc.isenabled)
        assert not entering.done()
        entering.cancel()
        await asyncio.wait([entering])
    assert gc.isenabled()


async def test_without_a_broker_it_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with connect("nats://127.0.0.1:9") as registry:
        async with registry.register_many(made(registry, 500), wait=0.5) as orders:
            assert {one.state for one in orders} == {"registering"}
        told = [record for record in caplog.records if record.name == "adsum.registration"]
    assert [line.getMessage().split(";")[0] for line in told if "trying again" in line.getMessage()] != []
    assert len(told) <= 3, [line.getMessage() for line in told[:5]]
