"""Whoever may publish can speak of another epoch: nobody is misled by it, and the broker is not asked in a loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from adsum.clients import Directory, connect
from adsum.clients.loading import ASKED_EVERY
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.ids import new_epoch
from adsum.events.signals import NamespaceMark, ServiceMark
from adsum.events.streams import EVENTS, TOPOLOGY, read_epoch
from adsum.projector.record import instance_of
from tests.daemons import Service, adsumd, topology
from tests.making import key, record
from tests.projector.test_daemon import FREE, connected
from tests.waiting import until


async def speak_of(epoch: str, bus: Broker) -> None:
    """Marks of an empty namespace and of a service, states of one who is there and of one who never was; all of them
    as changes, the states stored too."""
    for who in (key("a"), key("ghost")):
        state = encode(instance_of(record(who, revision=1 << 40), epoch))
        await bus.publish(subjects.change(who), state)
        await bus.store(TOPOLOGY, subjects.topology(who), state, {})
    mark = ServiceMark(epoch=epoch, round=7, revision=1, count=1, digest="0" * 31 + "1")
    await bus.publish(subjects.service_mark("default", "orders"), encode(mark))
    for round in (7, 8, 9):
        await bus.publish(
            subjects.namespace_mark("default"), encode(NamespaceMark(epoch=epoch, round=round, revision=1))
        )


def higher(epoch: str) -> str:
    return new_epoch([epoch])


def lower(_: str) -> str:
    return "01900000-0000-7000-8000-000000000000"


@pytest.mark.parametrize("other", [higher, pytest.param(lower, marks=pytest.mark.long)])
async def test_a_foreign_epoch_misleads_no_cache(tmp_path: Path, other: Callable[[str], str]) -> None:
    """What bears another epoch than the log is shown by no cache, open or new, which stays live; the log is asked at a
    bounded rate however often that is said; no registration begins anew."""
    asked: list[float] = []

    async def hear(_: Msg) -> None:
        asked.append(time.monotonic())

    async with adsumd(tmp_path / "data", *FREE) as daemon, connect(daemon.url) as registry:
        bus = await connected(daemon.url)
        epoch = await read_epoch(bus)
        await Service(bus, key("a"), heartbeat=100, ttl=300).register()
        before = await until(lambda: topology(bus, key("a")))
        async with registry.register("orders", port=80, id="me") as me, registry.directory("orders") as orders:
            term = me.term
            await until(lambda: ids(orders), {"a", "me"}.__eq__)
            await registry.broker.ready(5)
            counter = await bus.subscribe(f"$JS.API.STREAM.INFO.{EVENTS}", hear)
            began = time.monotonic()
            foreign = other(epoch)
            while time.monotonic() - began < ASKED_EVERY:
                await speak_of(foreign, bus)
                assert orders.state == "live"
                assert ids(orders) == {"a", "me"}
                await asyncio.sleep(0.005)
            lasted = time.monotonic() - began
            await bus.unsubscribe(counter)
            async with (
                registry.directory("orders") as late,
                connect(daemon.url) as process,
                process.directory("orders") as first,
            ):
                await asyncio.gather(*(proven(directory, {"a", "me"}) for directory in (orders, late, first)))
            assert me.term == term
        # The directory and the registration ask, each at most every two seconds; the daemon may look once in between.
        assert 1 <= len(asked) <= 2 * (lasted / ASKED_EVERY + 2), asked
        assert await until(lambda: topology(bus, key("a")), lambda told: told == before)
        await bus.close()


async def proven(directory: Directory, wanted: set[str]) -> None:
    """It shows these, and a mark proved it from now on."""
    await until(lambda: ids(directory), wanted.__eq__)
    since = time.monotonic()
    await until(lambda: directory.age, lambda age: age < time.monotonic() - since)
    assert (directory.state, ids(directory)) == ("live", wanted)


def ids(directory: Directory) -> set[str]:
    return {instance.id for instance in directory.instances()}
