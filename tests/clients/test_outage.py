"""A registration through outages of the broker, and through a log that becomes another one."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import pytest

from adsum.clients import BrokerUnavailable, Registry, Superseded, connect
from adsum.events.broker import Broker
from adsum.events.errors import Unacknowledged
from adsum.events.ids import new_id
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Silence,
    Updated,
)
from adsum.events.streams import ensure_streams
from adsum.projector.embedded import EmbeddedBroker
from tests.cli.programs import free_port
from tests.faults.logs import become_another_log
from tests.proxy import proxy_to
from tests.waiting import until

from .announcer import Announcer
from .test_registration import counter, expired, history, last, say_next

SILENCE = Silence(counter=1, silent=20.0, ttl=15.0)


async def restarted(nats: EmbeddedBroker, tmp_path: Path) -> EmbeddedBroker:
    """The same broker again: its port, its storage."""
    return await EmbeddedBroker.start(tmp_path / "broker", port=int(nats.url.rsplit(":", 1)[1]))


async def test_a_service_starts_without_a_broker_and_registers_when_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    server = await EmbeddedBroker.start(tmp_path, port=port)
    await server.stop()
    async with connect(server.url) as registry:
        began = time.monotonic()
        async with registry.register("orders", port=80, wait=0.2, heartbeat=0.1, ttl=0.3) as me:
            assert time.monotonic() - began < 2
            assert me.state == "registering"
            with pytest.raises(BrokerUnavailable):
                await me.registered(0.1)
            assert not await me.update(weight=4)
            server = await EmbeddedBroker.start(tmp_path, port=port)
            try:
                await registry.broker.ready(10)
                assert me.state == "registering"  # a broker without the streams is an outage like any other
                await ensure_streams(registry.broker)
                await me.registered(10)
                event = await last(registry.broker, me.key)
                assert isinstance(event, Registered)
                assert event.instance.weight == 4.0
                assert event.instance.endpoints[0].host == "127.0.0.1"
            finally:
                await server.stop()
    levels = [record.levelname for record in caplog.records if record.name == "adsum.registration"]
    assert "WARNING" in levels


async def test_an_outage_of_ten_seconds_is_survived_and_the_latest_data_stands(
    nats: EmbeddedBroker, registry: Registry, broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with registry.register("orders", port=80, wait=0.2, heartbeat=0.2, ttl=1.0) as me:
        first = me.term
        await me.update(weight=2)
        await nats.stop()
        await until(lambda: registry.broker.connected, lambda connected: not connected)
        assert not await me.update(weight=3)
        assert not await me.update(version="2.0")
        assert not await me.health("warning", "no registry")
        await asyncio.sleep(10)  # the outage
        assert me.state == "registered"
        again = await restarted(nats, tmp_path)
        try:
            await broker.ready(10)
            events = await until(lambda: history(broker, me.key), lambda events: len(events) >= 4, 5)
            assert me.term == first
            updated = events[2]
            assert isinstance(updated, Updated)
            assert (updated.instance.weight, updated.instance.version) == (3.0, "2.0")
            beaten = await counter(broker, me)
            await until(lambda: counter(broker, me), lambda count: count > beaten + 1)
            await say_next(broker, me.key, expired(first))  # the reaper was not down
            await until(lambda: me.term, lambda term: term != first, 5)
            newest = (await history(broker, me.key))[-1]
            assert isinstance(newest, Registered | HealthChanged)
            assert newest.term == me.term
        finally:
            await registry.broker.ready(5)
            await again.stop()
    records = [record for record in caplog.records if record.name == "adsum.registration"]
    assert {record.levelname for record in records} >= {"INFO", "WARNING", "ERROR"}


async def test_leaving_during_an_outage_is_bounded(nats: EmbeddedBroker, registry: Registry) -> None:
    async with registry.register("orders", port=80, heartbeat=0.2, ttl=1.0) as me:
        await nats.stop()
        await until(lambda: registry.broker.connected, lambda connected: not connected)
        began = time.monotonic()
    assert time.monotonic() - began < 4
    assert me.state == "closed"


async def test_a_registration_that_was_not_acknowledged_is_found_in_the_log(
    registry: Registry, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = lose_acknowledgements(registry.broker, monkeypatch, 2)
    async with registry.register("orders", port=80) as me:
        await me.registered(10)
        assert len(await history(broker, me.key)) == 1
        assert len(tried) == 1


@pytest.mark.parametrize("hidden", [False, True])
async def test_a_change_that_was_not_acknowledged_is_found_in_the_log_and_not_said_twice(
    nats: EmbeddedBroker, broker: Broker, hidden: bool
) -> None:
    """Its acknowledgement is lost in the network; also where somebody else spoke since."""
    async with proxy_to(nats.url) as proxy, connect(proxy.url, ping=0.3) as registry:
        async with registry.register("orders", port=80, id="one", wait=0.5) as me:
            await me.registered(10)
            proxy.blackhole("down")
            assert not await me.mode("draining", "once")
            await until(lambda: last(broker, me.key), lambda event: isinstance(event, ModeChanged))
            if hidden:
                await say_next(broker, me.key, Lapsed(id=new_id(), term=me.term, by=Author("reaper"), evidence=SILENCE))
            await until(lambda: not registry.broker.connected)
            proxy.heal()
            await until(lambda: me.health("warning"), seconds=20)
        said = [event for event in await history(broker, me.key) if isinstance(event, ModeChanged)]
    assert [(event.mode, event.reason) for event in said] == [("draining", "once")]


async def test_a_change_that_was_taken_back_before_it_was_acknowledged_does_not_stand(
    nats: EmbeddedBroker, broker: Broker
) -> None:
    """What the log says then is the owner's own word, and no operator's that it would have to obey."""
    async with proxy_to(nats.url) as proxy, connect(proxy.url, ping=0.3) as registry:
        async with registry.register("orders", port=80, id="one", wait=0.5) as me:
            await me.registered(10)
            proxy.blackhole("down")
            assert not await me.drain()
            assert not await me.serve()
            await until(lambda: last(broker, me.key), lambda event: isinstance(event, ModeChanged))
            await until(lambda: not registry.broker.connected)
            proxy.heal()
            await until(lambda: me.health("warning"), seconds=20)
            assert me.standing.mode == "serving"
        said = [event.mode for event in await history(broker, me.key) if isinstance(event, ModeChanged)]
    assert said == ["draining", "serving"]


async def test_one_that_was_not_acknowledged_yields_to_its_successor(
    nats: EmbeddedBroker, registry: Registry, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_acknowledgements(registry.broker, monkeypatch, 1, stored=False)
    async with (
        connect(nats.url) as other,
        registry.register("orders", port=80, id="one", wait=0) as me,
        other.register("orders", port=81, id="one") as successor,
    ):
        assert isinstance(await asyncio.wait_for(me.ended(), 10), Superseded)
        assert successor.state == "registered"
        event = await last(broker, me.key)
        assert event is not None
        assert event.term == successor.term


def lose_acknowledgements(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, times: int, *, stored: bool = True
) -> list[str]:
    """The next publishes are answered by nobody; `stored`: though they arrived."""
    tried: list[str] = []
    real = broker.store

    async def store(stream: str, subject: str, data: bytes, headers: dict[str, str], timeout: float = 5.0) -> int:
        tried.append(subject)
        if len(tried) > times:
            return await real(stream, subject, data, headers, timeout)
        if stored:
            await real(stream, subject, data, headers, timeout)
        else:
            await asyncio.sleep(0.5)  # what nobody answers takes its time
        raise Unacknowledged("nobody answered")

    monkeypatch.setattr(broker, "store", store)
    return tried


async def test_in_another_log_it_registers_again(registry: Registry, announcer: Announcer) -> None:
    broker = announcer.broker
    async with registry.register("orders", port=80, heartbeat=0.2, ttl=100) as me:
        first = me.term
        await me.update(weight=5)
        announcer.epoch = await become_another_log(broker, [])
        async with announcer.marking():
            await until(lambda: me.term, lambda term: term != first)
        event = await last(broker, me.key)
        assert isinstance(event, Registered)
        assert (event.term, event.instance.weight) == (me.term, 5.0)
        assert me.state == "registered"


async def test_what_was_said_in_another_log_does_not_stop_it(registry: Registry, announcer: Announcer) -> None:
    broker = announcer.broker
    async with registry.register("orders", port=80, id="one", heartbeat=0.2, ttl=100) as me:
        first = me.term
        announcer.epoch = await become_another_log(broker, [])
        term = "01900000-0000-7000-8000-000000000000"
        old = Registered(id=term, term=term, by=Author("owner", "another process"), instance=me.description)
        await say_next(broker, me.key, old)
        await announcer.put("orders", "one", 1, term=term)
        await until(lambda: me.term, lambda term: term != first)
        assert me.state == "registered"
        assert [event.term for event in await history(broker, me.key)] == [term, me.term]
    assert isinstance(await last(broker, me.key), Deregistered)
