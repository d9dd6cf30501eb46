"""The connection on a real server: it survives what happens to the server, and tells errors apart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, StreamConfig

from adsum.events import subjects
from adsum.events.broker import Broker, BrokerSettings, WrongLastSequence
from adsum.events.errors import BrokerRefused, BrokerUnavailable, InvalidValue, StreamMissing, Unacknowledged
from adsum.events.streams import BEATS, EVENTS, ensure_streams
from adsum.events.wire import Heard
from tests.proxy import proxy_to
from tests.servers import Server
from tests.unit.test_fold import KEY
from tests.waiting import until

Opener = Callable[..., Broker]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A nats-server that the test may kill."""
    running = await Server(tmp_path / "server").start()
    yield running
    await running.stop()


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    """`Broker.open` for connections that are closed after the test."""
    made: list[Broker] = []

    def open_one(url: str, **settings: object) -> Broker:
        options = {key: settings.pop(key) for key in ("ping", "keep_unsent") if key in settings}
        made.append(Broker.open(BrokerSettings(url=url, **settings), "test", **options))  # type: ignore[arg-type]
        return made[-1]

    yield open_one
    for one in made:
        await one.close()


def hearing() -> tuple[list[bytes], Callable[[Msg], Awaitable[None]]]:
    """What was heard, and the callback that hears it."""
    heard: list[bytes] = []

    async def hear(msg: Msg) -> None:
        heard.append(msg.data)

    return heard, hear


# ---- life


async def test_what_it_knows_of_its_server(server: Server, opened: Opener) -> None:
    broker = opened(server.url)
    assert not broker.connected
    assert broker.local_host is None
    assert broker.url == server.url
    await broker.ready(10)
    assert broker.connected
    assert (broker.url, broker.local_host, broker.connects, broker.outage.lasted) == (server.url, "127.0.0.1", 1, 0.0)
    assert broker.server_version.startswith("2.")


async def test_it_connects_once_the_broker_comes(tmp_path: Path, opened: Opener) -> None:
    server = await Server(tmp_path / "server").start()
    await server.kill()
    broker = opened(server.url)
    with pytest.raises(BrokerUnavailable, match=rf"no broker at {server.url} within 0.3 s: .*[Cc]onnect") as caught:
        await broker.ready(0.3)
    assert "\n" not in str(caught.value)
    await server.start()
    await broker.ready(10)
    await ensure_streams(broker)
    await server.stop()


async def test_it_survives_the_end_of_its_broker(server: Server, opened: Opener) -> None:
    broker, other = opened(server.url), opened(server.url, keep_unsent=False)
    await broker.ready(10)
    await other.ready(10)
    await ensure_streams(broker)
    heard, hear = hearing()
    connects: list[int] = []
    forget = broker.on_connect(lambda: connects.append(broker.connects))
    await broker.subscribe("greeting", hear)

    await server.kill()
    await until(lambda: broker.outage.lasted and other.outage.lasted)
    assert not broker.connected
    with pytest.raises(BrokerUnavailable, match="not connected"):
        await broker.store(EVENTS, subjects.event(KEY), b"{}", {})
    with pytest.raises(BrokerUnavailable):
        await other.publish("greeting", b"never sent")
    with pytest.raises(BrokerUnavailable):
        await broker.ready(0.1)
    await broker.publish("greeting", b"sent later")

    await server.start()
    await broker.ready(10)
    await other.ready(10)
    await other.publish("greeting", b"hello")
    await until(lambda: len(heard) >= 2)
    assert sorted(heard) == [b"hello", b"sent later"]
    assert connects == [2]
    forget()
    forget()
    assert (broker.connects, broker.outage.lasted) == (2, 0.0)
    assert await broker.store(EVENTS, subjects.event(KEY), b"{}", {}) == 1


async def test_a_paused_broker_is_noticed(server: Server, opened: Opener) -> None:
    broker = opened(server.url, ping=0.2)
    await broker.ready(10)
    server.pause()
    began = time.monotonic()
    await until(lambda: not broker.connected)
    assert time.monotonic() - began < 3
    server.go_on()
    await broker.ready(10)


async def test_closing_is_idempotent_and_bounded_whatever_the_state(server: Server) -> None:
    fresh = Broker.open(BrokerSettings(url=server.url), "test")
    nowhere = Broker.open(BrokerSettings(url="nats://127.0.0.1:9"), "test")
    paused = Broker.open(BrokerSettings(url=server.url), "test")
    await paused.ready(10)
    server.pause()
    for broker in (fresh, nowhere, paused):
        began = time.monotonic()
        await broker.close()
        await broker.close()
        assert not broker.connected
        assert time.monotonic() - began < 6
    assert [
        task for task in asyncio.all_tasks() if task is not asyncio.current_task() and "connect" in repr(task)
    ] == []


# ---- callbacks


async def test_a_callback_that_raises_ends_nothing(server: Server, opened: Opener) -> None:
    broker = opened(server.url)
    await broker.ready(10)
    connects: list[int] = []

    def raises() -> None:
        raise RuntimeError("a careless callback")

    async def raises_too(msg: Msg) -> None:
        raise RuntimeError(f"a careless callback: {msg.data!r}")

    broker.on_connect(raises)
    broker.on_connect(lambda: connects.append(1))

    def raises_at_once(heard: Heard) -> None:
        raise RuntimeError(f"another one: {heard.data!r}")

    heard, hear = hearing()
    await broker.subscribe("greeting", raises_too)
    await broker.listen("greeting", raises_at_once)
    await broker.subscribe("greeting", hear)
    await broker.publish("greeting", b"one")
    await server.kill()
    await server.start()
    await until(lambda: connects)
    await broker.publish("greeting", b"two")
    await until(lambda: b"two" in heard)
    await until(lambda: "careless" in broker.last_error or "another one" in broker.last_error)


async def test_a_subscription_is_in_force_when_it_returns(server: Server, opened: Opener) -> None:
    speaker, listener = opened(server.url), opened(server.url)
    await speaker.ready(10)
    await listener.ready(10)
    for number in range(50):
        heard, hear = hearing()
        subscription = await listener.subscribe(f"greeting.{number}", hear)
        await speaker.publish(f"greeting.{number}", b"one")
        await until(lambda heard=heard: heard)  # type: ignore[misc]
        await listener.unsubscribe(subscription)
        await listener.unsubscribe(subscription)


async def test_what_is_listened_to_is_heard_at_once_again_and_no_longer(server: Server, opened: Opener) -> None:
    """Also after the connection was made anew; and who left hears nothing more."""
    speaker, listener = opened(server.url), opened(server.url)
    await speaker.ready(10)
    await listener.ready(10)
    heard: list[Heard] = []
    subscription = await listener.listen("greeting.*", heard.append)
    await speaker.publish("greeting.one", b"1", headers={"A": "b"})
    await until(lambda: len(heard) == 1)
    await server.kill()
    await server.start()
    await until(lambda: speaker.connects == 2 and listener.connects == 2)
    await listener.flush()
    await speaker.publish("greeting.two", b"2", reply="there")
    await until(lambda: len(heard) == 2)
    assert [(one.subject, one.data, one.reply, one.headers) for one in heard] == [
        ("greeting.one", b"1", "", {"A": "b"}),
        ("greeting.two", b"2", "there", {}),
    ]
    await listener.unsubscribe(subscription)
    marker: list[Heard] = []
    await listener.listen("greeting.three", marker.append)
    await speaker.publish("greeting.three", b"3")
    await until(lambda: marker)
    assert len(heard) == 2


# ---- JetStream


async def test_a_condition_that_does_not_hold(broker: Broker) -> None:
    subject = subjects.event(KEY)
    first = {"Nats-Expected-Last-Subject-Sequence": "0"}
    assert await broker.store(EVENTS, subject, b"one", first) == 1
    with pytest.raises(WrongLastSequence):
        await broker.store(EVENTS, subject, b"two", first)
    assert await broker.store(EVENTS, subject, b"two", {"Nats-Expected-Last-Subject-Sequence": "1"}) == 2
    last = await broker.last_message(EVENTS, subject)
    assert last is not None
    assert (last.seq, last.data) == (2, b"two")


async def test_what_is_not_there(broker: Broker) -> None:
    assert await broker.last_message(EVENTS, subjects.event(KEY)) is None
    assert await broker.message_at(EVENTS, 99) is None
    assert await broker.stream_info("NOTHING") is None
    await broker.delete_consumer(EVENTS, "nobody")
    assert await broker.message_at("NOTHING", 1) is None
    with pytest.raises(BrokerUnavailable, match="no stream answers"):
        await broker.store(EVENTS, "nowhere", b"", {})
    with pytest.raises(BrokerRefused):
        await broker.store(BEATS, subjects.event(KEY), b"", {})


async def test_a_stream_that_was_deleted_and_a_limit_that_passes_are_told_apart(broker: Broker) -> None:
    config = ConsumerConfig(deliver_subject=broker.inbox(), inactive_threshold=30)
    await broker.create_stream(StreamConfig(name="SMALL", subjects=["small"], max_consumers=1))
    assert await broker.store("SMALL", "small", b"", {}) == 1
    first = await broker.create_consumer("SMALL", config)
    with pytest.raises(BrokerRefused, match="maximum consumers") as caught:
        await broker.create_consumer("SMALL", config)
    assert not isinstance(caught.value, StreamMissing)
    await broker.delete_consumer("SMALL", str(first.name))
    await broker.create_consumer("SMALL", config)  # the limit has passed

    await broker._js.delete_stream("SMALL")
    with pytest.raises(StreamMissing, match="read stream SMALL"):
        await broker.create_consumer("SMALL", config)
    with pytest.raises(StreamMissing, match="publish to small: there is no stream SMALL"):
        await broker.store("SMALL", "small", b"", {})
    assert broker.connected


async def test_an_answer_that_was_lost_with_the_connection_is_not_waited_for(server: Server, opened: Opener) -> None:
    """Both ways of publishing, and of looking, end as soon as the loss is noticed; what was published may be stored."""
    async with proxy_to(server.url) as proxy:
        cut_off = opened(proxy.url)
        await cut_off.ready(10)
        await ensure_streams(cut_off)
        proxy.blackhole("down")
        before = proxy.carried["up"]
        asked = [
            asyncio.ensure_future(cut_off.store(EVENTS, "adsum.v1.default.event.orders.a", b"1", {}, 60)),
            await cut_off.store_later(EVENTS, "adsum.v1.default.event.orders.b", b"2", {}),
            asyncio.ensure_future(cut_off.stream_info(EVENTS)),
            asyncio.ensure_future(cut_off.message_at(EVENTS, 1)),
        ]
        await until(lambda: proxy.carried["up"] > before)
        proxy.drop()
        proxy.heal()
        ended = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 4)
        assert [type(error) for error in ended] == [
            Unacknowledged,
            Unacknowledged,
            BrokerUnavailable,
            BrokerUnavailable,
        ]
        await cut_off.ready(10)
        assert await cut_off.stream_info(EVENTS)


async def test_many_at_once_keep_their_order(broker: Broker) -> None:
    futures = [await broker.store_later(EVENTS, subjects.event(KEY), b"%d" % number, {}) for number in range(2_000)]
    assert await asyncio.gather(*futures) == list(range(1, 2_001))


async def test_more_looks_at_once_than_the_broker_keeps_for_its_api(broker: Broker) -> None:
    """It drops all that wait there, of everybody. Of the ids some have a last word, some never had one."""
    of = [subjects.event(KEY._replace(id=f"o-{at}")) for at in range(12_000)]
    taken = {at: await broker.store(EVENTS, of[at], b"%d" % at, {}) for at in (0, 7, 5_000, 11_999)}
    looking = asyncio.gather(*(broker.last_message(EVENTS, subject) for subject in of))
    under_way = []
    while not looking.done():
        under_way.append(len(broker._publishing._waiting))
        await asyncio.sleep(0)
    found = looking.result()
    assert 100 < max(under_way) < 10_000
    assert {at: (raw.seq, raw.data, raw.subject) for at, raw in enumerate(found) if raw is not None} == {
        at: (sequence, b"%d" % at, of[at]) for at, sequence in taken.items()
    }


async def test_a_message_as_it_is_stored(broker: Broker) -> None:
    """Its headers as they were said, its time, and no data."""
    before = time.time()
    await broker.store(EVENTS, subjects.event(KEY), b"", {"Odd": "a: b", "Nats-Msg-Id": "x"})
    raw = await broker.message_at(EVENTS, 1)
    assert raw is not None
    assert (raw.subject, raw.seq, raw.data) == (subjects.event(KEY), 1, b"")
    assert raw.headers == {"Nats-Expected-Stream": EVENTS, "Odd": "a: b", "Nats-Msg-Id": "x"}
    assert raw.time is not None
    assert before - 1 < raw.time.timestamp() < time.time() + 1


async def test_many_at_once_fail_one_by_one(broker: Broker) -> None:
    wrong = {"Nats-Expected-Last-Subject-Sequence": "7"}
    futures = [await broker.store_later(EVENTS, subjects.event(KEY), b"", headers) for headers in ({}, wrong, {})]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert results[0] == 1
    assert isinstance(results[1], WrongLastSequence)
    assert results[2] == 2
    abandoned = await broker.store_later(EVENTS, subjects.event(KEY), b"", {})
    abandoned.cancel()
    assert await (await broker.store_later(EVENTS, subjects.event(KEY), b"", {})) == 4


async def test_too_large_a_message_is_told_and_the_connection_stands(broker: Broker) -> None:
    with pytest.raises((BrokerUnavailable, BrokerRefused), match="payload"):
        await broker.store(EVENTS, subjects.event(KEY), b"x" * 2_000_000, {})
    assert broker.connected
    assert broker.connects == 1


# ---- settings


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("", "at least one server"),
        (" , ", "at least one server"),
        ("127.0.0.1:4222", "must begin with nats://"),
        ("http://127.0.0.1", "must begin with nats://"),
        ("nats://a,b", "must begin with nats://"),
        ("nats://", "must name a host"),
        ("nats://a:0", "port from 1 to 65535"),
        ("nats://a:65536", "port from 1 to 65535"),
        ("nats://a:port", "port from 1 to 65535"),
    ],
)
async def test_a_url_that_is_none(url: str, rule: str) -> None:
    with pytest.raises(InvalidValue, match=rule):
        Broker.open(BrokerSettings(url=url), "test")


@pytest.mark.parametrize("field", ["credentials", "nkey", "tls_ca", "tls_cert"])
async def test_a_file_that_is_not_there(tmp_path: Path, field: str) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(InvalidValue, match="must be a file") as caught:
        Broker.open(BrokerSettings(**{field: missing}), "test")
    assert (caught.value.field, caught.value.value) == (field, missing)
    (tmp_path / "missing").write_text("junk")
    if field.startswith("tls"):
        with pytest.raises(InvalidValue, match="PEM") as caught:
            Broker.open(BrokerSettings(**{field: missing}), "test")
        assert caught.value.field == field


def test_several_servers_and_what_is_told_of_them() -> None:
    settings = BrokerSettings(url="nats://ann:secret@a:4222, tls://token@b,nats://c")
    assert settings.servers == ["nats://ann:secret@a:4222", "tls://token@b", "nats://c"]
    assert settings.shown == "nats://a:4222,tls://b,nats://c"
