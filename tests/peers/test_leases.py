"""Leases on a real broker: what a renewal knows, and that an outage never looks like an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from adsum.clients import BrokerUnavailable, Endpoint, InvalidValue, Lease, Leases, Registry, Unconfirmed, connect
from adsum.clients.errors import Expired, LifeEnded
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_heartbeat, encode
from adsum.events.errors import StreamMissing
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, Event, Lapsed, ModeChanged, Registered, Resumed, Silence
from adsum.events.lifecycle import Expired as ExpiredEvent
from adsum.events.log import last_word
from adsum.events.names import Key
from adsum.events.signals import Instance
from adsum.events.streams import BEATS, EVENTS
from adsum.projector.embedded import EmbeddedBroker
from tests.clients.test_outage import restarted
from tests.daemons import adsumd, events_of, topology
from tests.faults.logs import become_another_log, words
from tests.making import OPERATOR, OWNER, REAPER, description, key
from tests.proxy import Proxy, proxy_to
from tests.waiting import until

from .leasing import HERE, KEY, leases, registry, say_next

__all__ = ["leases", "registry"]

SILENCE = Silence(counter=1, silent=3.0, ttl=1.0)


@pytest.fixture
async def proxy(nats: EmbeddedBroker) -> AsyncIterator[Proxy]:
    """A network that fails."""
    async with proxy_to(nats.url) as proxy:
        yield proxy


async def say_again(broker: Broker, event: Event, of: Key = KEY) -> None:
    """Store an event without any condition, as if the broker had forgotten that it has it."""
    await broker.store(EVENTS, subjects.event(of), encode(event), {})


async def counter(broker: Broker, lease: Lease) -> int:
    """The last heartbeat that is stored of a lease; 0: none."""
    raw = await broker.last_message(BEATS, subjects.beat(lease.key, lease.term))
    return decode_heartbeat(raw.data or b"").counter if raw is not None else 0


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


def expired(term: str) -> Event:
    return ExpiredEvent(id=new_id(), term=term, by=REAPER, evidence=SILENCE)


def lapsed(term: str) -> Event:
    return Lapsed(id=new_id(), term=term, by=REAPER, evidence=SILENCE)


def removed(term: str) -> Event:
    return Deregistered(id=new_id(), term=term, by=OPERATOR, reason="broken")


def goodbye(term: str) -> Event:
    return Deregistered(id=new_id(), term=term, by=OWNER)


def foreign() -> Registered:
    term = new_id()
    return Registered(id=term, term=term, by=OWNER, instance=description())


# ---- what is said


async def test_it_says_that_it_came_that_it_is_there_and_that_it_goes(leases: Leases, broker: Broker) -> None:
    """The token is the term; each renewal is one stored heartbeat, and nobody renews but the caller."""
    await leases.register("warm", HERE)  # the first answer makes a task of the driver's
    tasks = asyncio.all_tasks()
    lease = await leases.register(
        "orders", "[::1]:8080", ttl=1.5, protocol="grpc", capabilities=["pay"], zone="eu", version="2", weight=3
    )
    assert asyncio.all_tasks() == tasks
    [event] = await events_of(broker, lease.key)
    assert isinstance(event, Registered)
    assert event.id == event.term == lease.term
    assert event.instance == lease.description
    assert event.instance.endpoints == (Endpoint(host="::1", port=8080, protocol="grpc"),)
    assert (event.instance.heartbeat, event.instance.ttl, lease.ttl) == (0.5, 1.5, 1.5)
    assert (event.instance.zone, event.instance.version, event.instance.weight) == ("eu", "2", 3.0)
    assert [await counter(broker, lease)] + [await renewed(leases, lease, broker) for _ in range(3)] == [1, 2, 3, 4]
    await leases.deregister(lease, "new version")
    await leases.deregister(lease)
    said = await events_of(broker, lease.key)
    assert kinds(said) == [Registered, Deregistered]
    assert isinstance(said[1], Deregistered)
    assert (said[1].term, said[1].reason, said[1].by.kind) == (lease.term, "new version", "owner")
    with pytest.raises(Expired, match="it was deregistered") as caught:
        await leases.renew(lease)
    assert (caught.value.how, caught.value.term, caught.value.key) == ("deregistered", lease.term, lease.key)
    assert isinstance(caught.value, LifeEnded)


async def renewed(leases: Leases, lease: Lease, broker: Broker) -> int:
    """Renew; the heartbeat that is stored then."""
    await leases.renew(lease)
    return await counter(broker, lease)


@pytest.mark.parametrize(
    ("service", "endpoint", "more", "field"),
    [
        ("Orders!", HERE, {}, "service"),
        ("orders", "127.0.0.1", {}, "endpoint"),
        ("orders", "127.0.0.1:http", {}, "endpoint"),
        ("orders", "::1:80", {}, "endpoint"),
        ("orders", ":80", {}, "host"),
        ("orders", "0.0.0.0:80", {}, "host"),
        ("orders", "127.0.0.1:0", {}, "port"),
        ("orders", "127.0.0.1:99999", {}, "port"),
        ("orders", Endpoint(host="h", port=0), {}, "port"),
        ("orders", HERE, {"id": "A"}, "instance id"),
        ("orders", HERE, {"ttl": 0.1}, "ttl"),
        ("orders", HERE, {"ttl": -1}, "ttl"),
        ("orders", HERE, {"ttl": 9999}, "ttl"),
        ("orders", HERE, {"weight": -1}, "weight"),
        ("orders", HERE, {"capabilities": ["a b"]}, "capability"),
    ],
)
async def test_what_breaks_a_rule_is_refused_before_anything_is_sent(
    leases: Leases, broker: Broker, service: str, endpoint: str, more: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidValue) as caught:
        await leases.register(service, endpoint, **more)  # type: ignore[arg-type]
    assert caught.value.field == field
    assert await words(broker) == []


# ---- how it ends


@pytest.mark.parametrize(
    ("how", "said", "told"),
    [
        ("expired", expired, "expired: silent for 3.0 s"),
        ("removed", removed, "removed by operator somebody: broken"),
        ("deregistered", goodbye, "it was deregistered"),
        ("superseded", lambda _: foreign(), "a later registration has the id"),
    ],
)
@pytest.mark.parametrize("hidden", [False, True])
async def test_a_renewal_tells_how_the_life_ended(
    leases: Leases, broker: Broker, how: str, said: Callable[[str], Event], told: str, hidden: bool
) -> None:
    """Also where the last word is a stray, of a life that nobody knows."""
    lease = await leases.register("orders", HERE, id="o-1")
    await say_next(broker, said(lease.term))
    if hidden:
        await say_next(broker, expired(new_id()))
    before = await words(broker)
    for _ in range(2):
        with pytest.raises(Expired, match=told) as caught:
            await leases.renew(lease)
        assert caught.value.how == how
    await leases.deregister(lease)
    assert await words(broker) == before, "nothing is said of a life that is over"


async def test_what_is_no_end_of_it_ends_nothing(
    leases: Leases, registry: Registry, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lapsed and revived, spoken to by an operator, strays, and an old word that the broker stores once more.

    What is behind a word is read once, and not with each renewal.
    """
    read = []
    create = registry.broker.create_consumer
    monkeypatch.setattr(registry.broker, "create_consumer", lambda *asked: read.append(asked) or create(*asked))
    old = foreign()
    await say_next(broker, old)
    lease = await leases.register("orders", HERE, id="o-1")
    await say_next(broker, lapsed(lease.term))
    await leases.renew(lease)
    await say_next(broker, Resumed(id=new_id(), term=lease.term, by=REAPER, evidence=SILENCE))
    await say_next(broker, ModeChanged(id=new_id(), term=lease.term, by=OPERATOR, mode="draining"))
    await leases.renew(lease)
    for stray in (expired(new_id()), removed(old.term), goodbye(old.term)):
        await say_next(broker, stray)
        await leases.renew(lease)
    await say_again(broker, old)
    assert len(read) == 5
    for _ in range(3):
        await leases.renew(lease)
    assert len(read) == 6
    assert await counter(broker, lease) == 9
    await leases.deregister(lease)
    word = await last_word(broker, KEY)
    assert word is not None
    assert isinstance(word.event, Deregistered)
    assert word.event.term == lease.term


async def test_in_a_log_that_lost_it_it_is_over(leases: Leases, broker: Broker) -> None:
    """And in one that was exported and imported, under another epoch, it goes on."""
    lease = await leases.register("orders", HERE)
    await become_another_log(broker, await words(broker))
    await leases.renew(lease)
    await become_another_log(broker, [])
    with pytest.raises(Expired) as caught:
        await leases.renew(lease)
    assert caught.value.how == "lost"
    again = await leases.register("orders", HERE, id=lease.id)
    await leases.renew(again)


async def test_an_old_lease_never_ends_its_successor(leases: Leases, broker: Broker) -> None:
    """The later registration of an id has it; the earlier holder is told, and its goodbye says nothing."""
    first = await leases.register("orders", HERE, id="o-1")
    second = await leases.register("orders", "127.0.0.1:8081", id="o-1")
    await leases.deregister(first)
    with pytest.raises(Expired) as caught:
        await leases.renew(first)
    assert caught.value.how == "superseded"
    assert second.term in str(caught.value)
    await leases.renew(second)
    assert kinds(await events_of(broker, KEY)) == [Registered, Registered]


async def test_two_who_register_one_id_at_once(leases: Leases, broker: Broker) -> None:
    """One of them has it, and the others know."""
    many = await asyncio.gather(*(leases.register("orders", HERE, id="o-1") for _ in range(8)))
    told = await asyncio.gather(*(leases.renew(lease) for lease in many), return_exceptions=True)
    word = await last_word(broker, KEY)
    assert word is not None
    assert word.event is not None
    assert [lease.term for lease, error in zip(many, told, strict=True) if error is None] == [word.event.term]
    assert {error.how for error in told if isinstance(error, Expired)} == {"superseded"}


# ---- outages


async def test_an_outage_is_never_an_end(
    nats: EmbeddedBroker, leases: Leases, registry: Registry, broker: Broker, tmp_path: Path
) -> None:
    """The broker is killed: whatever is asked raises BrokerUnavailable; when it is back the lease goes on."""
    lease = await leases.register("orders", HERE)
    await nats.stop()
    impatient = registry.leases(timeout=0.3)
    with pytest.raises(Unconfirmed) as caught:
        await impatient.register("orders", HERE, id="o-2")
    for asked in (impatient.renew(lease), impatient.deregister(lease), impatient.renew(caught.value.lease)):
        with pytest.raises(BrokerUnavailable):
            await asked
    again = await restarted(nats, tmp_path)
    try:
        await registry.broker.ready(10)
        await broker.ready(10)
        await leases.renew(lease)
        assert kinds(await events_of(broker, lease.key)) == [Registered]
        assert await events_of(broker, key("o-2")) == []
        await leases.renew(caught.value.lease)
        assert kinds(await events_of(broker, key("o-2"))) == [Registered]
    finally:
        await again.stop()


async def test_without_streams_it_says_so(nats: EmbeddedBroker) -> None:
    """No adsumd ever ran here: that is no outage."""
    async with connect(nats.url) as registry:
        with pytest.raises(StreamMissing):
            await registry.leases(timeout=1.0).register("orders", HERE)


@pytest.mark.parametrize("answer", [b'{"stream":"ADSUM_BEATS"', b"stream_msg_get_response"], ids=["beat", "look"])
async def test_a_renewal_whose_answer_is_lost(broker: Broker, proxy: Proxy, answer: bytes) -> None:
    """Of the heartbeat, or about the life: it raises that the broker did not answer; the next one is as any other."""
    async with connect(proxy.url, ping=0.2) as registry:
        leases = registry.leases()
        lease = await leases.register("orders", HERE)
        proxy.hold_at(answer, "down")
        renewing = asyncio.create_task(leases.renew(lease))
        await until(lambda: proxy.holds("down"))
        proxy.drop()
        with pytest.raises(BrokerUnavailable):
            await renewing
        assert await counter(broker, lease) == 2, "it was stored all the same"
        proxy.heal()
        await registry.broker.ready(10)
        await leases.renew(lease)
        assert await counter(broker, lease) == 3


async def test_a_registration_whose_acknowledgement_is_lost_is_one_life(broker: Broker, proxy: Proxy) -> None:
    """It asks what became of it, by itself."""
    async with connect(proxy.url, ping=0.2) as registry:
        await registry.broker.ready(10)
        proxy.hold_at(b'{"stream":"ADSUM_EVENTS"', "down")
        registering = asyncio.create_task(registry.leases(timeout=20).register("orders", HERE, id="o-1"))
        await until(lambda: proxy.holds("down"))
        proxy.heal()
        proxy.drop()
        lease = await registering
    [event] = await events_of(broker, KEY)
    assert event.term == lease.term


@pytest.mark.parametrize("then", ["renew", "deregister"])
async def test_one_that_is_not_known_to_be_there_is_asked_for_again(broker: Broker, proxy: Proxy, then: str) -> None:
    """By the token that the error bears: it is there, as one life, or is given up."""
    async with connect(proxy.url, ping=0.2) as registry:
        await registry.broker.ready(10)
        proxy.hold_at(b'{"stream":"ADSUM_EVENTS"', "down")
        with pytest.raises(Unconfirmed) as caught:
            await registry.leases(timeout=1.5).register("orders", HERE, id="o-1")
        lease = caught.value.lease
        proxy.heal()
        proxy.drop()
        await until(lambda: registry.broker.connects == 2 and registry.broker.connected)
        await getattr(registry.leases(), then)(lease)
        said = await events_of(broker, KEY)
        assert {event.term for event in said} == {lease.term}
        assert kinds(said) == ([Registered] if then == "renew" else [Registered, Deregistered])
        assert await counter(broker, lease) == (1 if then == "renew" else 0)


async def test_a_registration_that_arrives_late_replaces_nobody(leases: Leases, broker: Broker, proxy: Proxy) -> None:
    """Held up on its way, overtaken by another process, delivered after it: the other one stands, and it yields."""
    async with connect(proxy.url, ping=60) as registry:
        await registry.broker.ready(10)
        proxy.hold_at(b'"type":"registered"')
        with pytest.raises(Unconfirmed) as caught:
            await registry.leases(timeout=1.5).register("orders", HERE, id="o-1")
        successor = await leases.register("orders", "127.0.0.1:8081", id="o-1")
        proxy.heal()
        with pytest.raises(Expired) as over:
            await registry.leases().renew(caught.value.lease)
        assert over.value.how == "superseded"
        await registry.leases().deregister(caught.value.lease)
    await leases.renew(successor)
    assert [event.term for event in await events_of(broker, KEY)] == [successor.term]


# ---- with an adsumd


async def test_who_stops_renewing_is_stale_then_revives_or_expires(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, leases: Leases
) -> None:
    """Nothing renews behind; a late renewal of one that is stale is heard; of one that expired it says so."""
    async with adsumd(tmp_path / "data", "--nats", nats.url):
        lease = await leases.register("orders", HERE, 1.5, id="o-1")
        await until(lambda: topology(broker, KEY), lambda told: isinstance(told, Instance) and told.liveness == "stale")
        assert await counter(broker, lease) == 1
        await leases.renew(lease)
        await until(lambda: topology(broker, KEY), lambda told: isinstance(told, Instance) and told.liveness == "up")
        await until(lambda: events_of(broker, KEY), lambda said: ExpiredEvent in kinds(said), seconds=30)
        with pytest.raises(Expired, match="silent for") as caught:
            await leases.renew(lease)
        assert caught.value.how == "expired"
        assert kinds(await events_of(broker, KEY)) == [Registered, Lapsed, Resumed, Lapsed, ExpiredEvent]
