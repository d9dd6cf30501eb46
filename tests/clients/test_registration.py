"""A registration on a real broker: what it says, and what it does about what others say of it."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from adsum.clients import (
    BrokerUnavailable,
    Endpoint,
    InvalidValue,
    Key,
    LifeEnded,
    Registration,
    Registry,
    Removed,
    Superseded,
    connect,
)
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event, decode_heartbeat
from adsum.events.errors import BrokerRefused, StreamMismatch
from adsum.events.ids import new_id
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Event,
    Expired,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Silence,
    Updated,
)
from adsum.events.log import last_word, say
from adsum.events.reader import ReaderLost, StreamReader
from adsum.events.streams import BEATS, EVENTS
from adsum.projector.embedded import EmbeddedBroker
from tests.waiting import until

from .announcer import Announcer, instance

REAPER, OPERATOR = Author("reaper"), Author("operator", "ann")
SILENCE = Silence(counter=1, silent=3.0, ttl=1.0)


async def history(broker: Broker, key: Key) -> list[Event]:
    """All that was said of an instance."""
    events: list[Event] = []
    async with StreamReader(broker, EVENTS, [subjects.event(key)]) as reader:
        while batch := await reader.to_end():
            events += [decode_event(message.data) for message in batch]
    return events


async def last(broker: Broker, key: Key) -> Event | None:
    word = await last_word(broker, key)
    return word.event if word is not None else None


async def counter(broker: Broker, me: Registration) -> int:
    """The last heartbeat of the life."""
    raw = await broker.last_message(BEATS, subjects.beat(me.key, me.term))
    return decode_heartbeat(raw.data or b"").counter if raw is not None else 0


async def say_next(broker: Broker, key: Key, event: Event) -> int:
    """Say an event after whatever was said last."""
    word = await last_word(broker, key)
    return await say(broker, key, event, word.sequence if word is not None else 0)


def expired(term: str) -> Event:
    return Expired(id=new_id(), term=term, by=REAPER, evidence=SILENCE)


async def test_it_says_that_it_came_that_it_is_there_and_that_it_goes(registry: Registry, broker: Broker) -> None:
    async with registry.register(
        "orders", port=80, capabilities=["pay"], metadata={"a": "b"}, heartbeat=0.1, ttl=0.3
    ) as me:
        assert me.state == "registered"
        event = await last(broker, me.key)
        assert isinstance(event, Registered)
        assert event.id == event.term == me.term
        assert event.by == Author("owner", "tested")
        assert event.instance == me.description
        assert me.description.endpoints == (Endpoint(host="127.0.0.1", port=80, protocol="http"),)
        await until(lambda: counter(broker, me), lambda count: count >= 3)
    assert me.state == "closed"
    assert [type(event) for event in await history(broker, me.key)] == [Registered, Deregistered]
    said = await counter(broker, me)
    await asyncio.sleep(0.3)  # three beats that must not come
    assert await counter(broker, me) == said
    assert type(await me.ended()) is LifeEnded


async def test_after_a_pause_of_the_process_beats_do_not_come_in_a_burst(registry: Registry, broker: Broker) -> None:
    async with registry.register("orders", port=80, heartbeat=0.1, ttl=60) as me:
        before = await counter(broker, me)
        time.sleep(3)  # noqa: ASYNC251  # the whole process stands still, for thirty beats
        await until(lambda: counter(broker, me), lambda count: count >= before + 2)
        assert await counter(broker, me) <= before + 15


async def test_beats_are_faster_before_the_log_says_so_and_slower_only_after(
    registry: Registry, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def store(*_: object) -> int:
        raise BrokerUnavailable("nobody takes it")

    async with registry.register("orders", port=80, heartbeat=20, ttl=60, wait=0.05) as me:
        await me.registered(10)
        before = await counter(broker, me)
        with monkeypatch.context() as patch:
            patch.setattr(registry.broker, "store", store)
            assert not await me.update(heartbeat=0.1, ttl=0.3)
            await until(lambda: counter(broker, me), lambda count: count > before + 3)
        await until(lambda: last(broker, me.key), lambda event: isinstance(event, Updated))
        with monkeypatch.context() as patch:
            patch.setattr(registry.broker, "store", store)
            assert not await me.update(heartbeat=20, ttl=60)
            before = await counter(broker, me)
            await until(lambda: counter(broker, me), lambda count: count > before + 3)
        await until(lambda: last(broker, me.key), lambda event: getattr(event, "instance", None) == me.description)
        await until(lambda: me.owned.interval(), (20.0).__eq__)


@pytest.mark.parametrize(
    ("service", "options"),
    [
        ("Orders!", {"port": 80}),
        ("orders", {}),
        ("orders", {"port": 0}),
        ("orders", {"port": 80, "host": "0.0.0.0"}),
        ("orders", {"port": 80, "id": "A"}),
        ("orders", {"port": 80, "ttl": 1.0}),
        ("orders", {"port": 80, "capabilities": ["no spaces"]}),
        ("orders", {"port": 80, "endpoints": [Endpoint(host="h", port=1)]}),
        ("orders", {"endpoints": []}),
    ],
)
async def test_what_breaks_a_rule_is_refused_before_anything_is_sent(
    registry: Registry, service: str, options: dict[str, object]
) -> None:
    with pytest.raises(InvalidValue):
        registry.register(service, **options)  # type: ignore[arg-type]  # wrong on purpose


async def test_an_error_in_the_block_comes_out_as_it_is(registry: Registry, broker: Broker) -> None:
    with pytest.raises(ZeroDivisionError):
        async with registry.register("orders", port=80) as me:
            raise ZeroDivisionError
    assert isinstance(await last(broker, me.key), Deregistered)


async def test_a_bug_in_its_task_ends_the_block_loudly(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    async def serve() -> None:
        async with registry.register("orders", port=80) as me:
            monkeypatch.setattr("adsum.clients.reconciler.next_event", broken)
            await me.update(weight=2)
            await asyncio.sleep(10)  # it must be ended before

    with pytest.raises(ExceptionGroup) as caught:
        await serve()
    assert caught.group_contains(RuntimeError, match="a bug")


async def test_changes_are_said_one_after_the_other(registry: Registry, broker: Broker) -> None:
    async with registry.register("orders", port=80) as me:
        assert await me.update(weight=2, metadata={"k": "v"})
        assert await me.health("warning", "slow disk")
        assert await me.mode("maintenance", "backup")
        assert await me.serve()
        assert await me.drain("deploy", told=0)
        with pytest.raises(InvalidValue):
            await me.update(weight=-1)
        with pytest.raises(InvalidValue):
            await me.health("sick")  # type: ignore[arg-type]  # wrong on purpose
    events = await history(broker, me.key)
    kinds = [Registered, Updated, HealthChanged, ModeChanged, ModeChanged, ModeChanged, Deregistered]
    assert [type(event) for event in events] == kinds
    assert {event.term for event in events} == {me.term}
    updated = events[1]
    assert isinstance(updated, Updated)
    assert (updated.instance.weight, updated.instance.metadata) == (2.0, {"k": "v"})
    with pytest.raises(LifeEnded):
        await me.update(weight=3)


async def test_draining_waits_until_the_directories_were_told(registry: Registry, announcer: Announcer) -> None:
    """And a while longer, until those who had just picked it have come."""
    async with registry.register("orders", port=80) as me:
        draining = asyncio.create_task(me.drain("deploy", told=20, settle=0.5))
        await until(lambda: last(announcer.broker, me.key), lambda event: isinstance(event, ModeChanged))
        assert not draining.done()
        began = time.monotonic()
        await announcer.put("orders", me.id, 2, term=me.term, mode="draining")
        assert await asyncio.wait_for(draining, 20)
        assert time.monotonic() - began >= 0.5


async def test_the_later_registration_of_an_id_wins_and_the_earlier_stops(
    nats: EmbeddedBroker, registry: Registry, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        connect(nats.url) as other,
        registry.register("orders", port=80, id="one", heartbeat=0.1, ttl=0.3) as first,
        other.register("orders", port=81, id="one", heartbeat=0.1) as second,
    ):
        assert second.state == "registered"
        end = await asyncio.wait_for(first.ended(), 5)
        assert isinstance(end, Superseded)
        assert end.by == second.term
        assert first.state == "superseded"
        with pytest.raises(Superseded):
            await first.update(weight=2)
        beaten = await counter(broker, first)
        await until(lambda: counter(broker, second), lambda count: count >= 3)
        assert await counter(broker, first) == beaten
        assert second.state == "registered"
    assert any("superseded" in record.message for record in caplog.records if record.levelno == logging.ERROR)
    assert [type(event) for event in await history(broker, first.key)] == [Registered, Registered, Deregistered]


async def test_an_operators_removal_is_obeyed(registry: Registry, broker: Broker) -> None:
    async with registry.register("orders", port=80, heartbeat=0.1, ttl=0.3) as me:
        await say_next(broker, me.key, Deregistered(id=new_id(), term=me.term, by=OPERATOR, reason="misbehaves"))
        end = await asyncio.wait_for(me.ended(), 5)
        assert isinstance(end, Removed)
        assert (end.by, end.reason) == ("ann", "misbehaves")
        assert me.state == "removed"
        with pytest.raises(Removed):
            me.raise_if_ended()
    assert [type(event) for event in await history(broker, me.key)] == [Registered, Deregistered]


async def test_an_operators_removal_is_obeyed_also_after_it_expired(registry: Registry, broker: Broker) -> None:
    async with registry.register("orders", port=80, heartbeat=30, ttl=60) as me:
        await say_next(broker, me.key, expired(me.term))
        await say_next(broker, me.key, Deregistered(id=new_id(), term=me.term, by=OPERATOR))
        with pytest.raises(Removed):  # what it would say is refused, so it looks
            await me.update(weight=2)


async def test_an_expired_life_is_followed_by_another_with_the_current_data(
    registry: Registry, announcer: Announcer, broker: Broker
) -> None:
    async with registry.register("orders", port=80, heartbeat=0.1, ttl=0.3) as me:
        first = me.term
        await me.update(weight=7)
        await me.health("warning", "slow")
        await say_next(broker, me.key, expired(first))
        await until(lambda: me.term, lambda term: term != first)
        again = await until(lambda: history(broker, me.key), lambda events: len(events) == 6)
        assert isinstance(again[4], Registered)
        assert (again[4].term, again[4].instance.weight, again[4].health) == (me.term, 7.0, "warning")
        assert isinstance(again[5], HealthChanged)
        assert again[5].reason == "slow"
        await until(lambda: counter(broker, me), lambda count: count >= 2)


async def test_a_hint_is_enough_to_look(registry: Registry, announcer: Announcer) -> None:
    async with registry.register("orders", port=80, heartbeat=100, ttl=1000) as me:
        first = me.term
        revision = await say_next(announcer.broker, me.key, expired(first))
        await announcer.end("orders", me.id, revision)
        await until(lambda: me.term, lambda term: term != first)


async def test_a_lapsed_life_goes_on(registry: Registry, broker: Broker) -> None:
    async with registry.register("orders", port=80) as me:
        first = me.term
        await say_next(broker, me.key, Lapsed(id=new_id(), term=first, by=REAPER, evidence=SILENCE))
        assert await me.update(weight=2)
        assert me.term == first
    assert [type(event) for event in await history(broker, me.key)] == [Registered, Lapsed, Updated, Deregistered]


async def test_goodbye_is_said_also_when_the_reaper_spoke_last(registry: Registry, broker: Broker) -> None:
    async with registry.register("orders", port=80) as me:
        await say_next(broker, me.key, Lapsed(id=new_id(), term=me.term, by=REAPER, evidence=SILENCE))
    assert isinstance(await last(broker, me.key), Deregistered)


async def test_what_operators_say_is_taken_over_and_survives_the_next_life(
    registry: Registry, announcer: Announcer
) -> None:
    broker = announcer.broker
    async with registry.register("orders", port=80) as me:
        await say_next(broker, me.key, HealthChanged(id=new_id(), term=me.term, by=OPERATOR, health="critical"))
        drained = ModeChanged(id=new_id(), term=me.term, by=OPERATOR, mode="draining", reason="rack moves")
        revision = await say_next(broker, me.key, drained)
        await announcer.put(
            "orders", me.id, revision, term=me.term, mode="draining", health="critical", reason="rack moves"
        )
        await until(lambda: (me.standing.mode, me.standing.health), ("draining", "critical").__eq__)
        await say_next(broker, me.key, expired(me.term))
        await me.update(weight=2)
        registered = [event for event in await history(broker, me.key) if isinstance(event, Registered)]
        assert [(event.mode, event.health) for event in registered] == [
            ("serving", "passing"),
            ("draining", "critical"),
        ]


async def test_a_word_that_cannot_be_read_is_nobodys(registry: Registry, broker: Broker) -> None:
    key = Key("default", "orders", "one")
    await broker.store(EVENTS, subjects.event(key), b"{", {})
    async with registry.register("orders", port=80, id="one") as me:
        assert me.state == "registered"
        await broker.store(EVENTS, subjects.event(key), b"{", {})
        assert await me.update(weight=2)
        assert me.state == "registered"


def stray(term: str) -> Event:
    return Deregistered(id=new_id(), term=term, by=Author("owner", "an old process"))


async def test_a_stray_word_of_another_term_does_not_stop_it(registry: Registry, broker: Broker) -> None:
    async with registry.register("orders", port=80) as me:
        first = me.term
        for term in (new_id(), "another"):
            await say_next(broker, me.key, stray(term))
            assert await me.update(weight=me.description.weight + 1)
        await say_next(broker, me.key, stray("another"))
        me._reconciler.reconnected()
        await until(lambda: me._reconciler._look_due, False.__eq__)
        assert (me.state, me.term) == ("registered", first)
        await say_next(broker, me.key, stray("another"))
    said = [event for event in await history(broker, me.key) if event.term == first]
    assert [type(event) for event in said] == [Registered, Updated, Updated, Deregistered]


@pytest.mark.parametrize("ours", [False, True])
async def test_a_stray_word_hides_neither_the_end_of_a_life_nor_a_successor(
    registry: Registry, broker: Broker, ours: bool
) -> None:
    """Of a life that nobody knows, or of ours that was over before."""

    def late(term: str) -> Event:
        return Lapsed(id=new_id(), term=term, by=REAPER, evidence=SILENCE) if ours else stray("another")

    async with registry.register("orders", port=80) as me:
        first = me.term
        await say_next(broker, me.key, expired(first))
        await say_next(broker, me.key, late(me.term))
        assert await me.update(weight=2)
        assert me.term != first
        term = new_id()
        rival = Registered(id=term, term=term, by=OPERATOR, instance=me.description)
        await say_next(broker, me.key, rival)
        await say_next(broker, me.key, late(me.term))
        with pytest.raises(Superseded):
            await me.update(weight=3)


async def test_leaving_is_no_error_when_the_log_is_not_as_it_should_be(
    registry: Registry, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for trouble in (StreamMismatch(EVENTS, [("epoch", None, "a UUIDv7")]), ReaderLost("a gap"), BrokerRefused("no")):

        async def asked(_: Broker, trouble: Exception = trouble) -> str:
            raise trouble

        async with registry.register("orders", port=80) as me:
            term = new_id()
            rival = Registered(id=term, term=term, by=OPERATOR, instance=me.description)
            await say_next(broker, me.key, rival)
            monkeypatch.setattr("adsum.events.together.read_epoch", asked)
        monkeypatch.undo()
        assert me.state == "closed"
        assert str(trouble) in caplog.text


async def test_a_state_of_somebody_elses_is_only_a_hint(registry: Registry, announcer: Announcer) -> None:
    async with registry.register("orders", port=80) as me:
        await announcer.tell(instance("orders", me.id, 99, announcer.epoch, term="another"))
        assert await me.update(weight=2)
        assert me.state == "registered"
