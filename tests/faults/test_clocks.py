"""Wrong clocks and clocks that are set: they change neither who is alive nor what comes after what."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.clients import connect
from adsum.events.broker import Broker
from adsum.events.ids import new_id
from adsum.events.lifecycle import Expired, Lapsed, Registered
from adsum.projector.embedded import EmbeddedBroker
from tests.clocks import Clock, needs_faketime
from tests.daemons import adsumd, events_of, topology
from tests.making import key
from tests.projector.test_daemon import FREE
from tests.waiting import until

from .looking import is_gone, is_up, tick_number, ticks
from .owners import one, owner

TTL = 1.5
HOURS = {"ahead": 1.0, "behind": -1.0, "right": 0.0}


@needs_faketime
async def test_row_08_producers_and_observer_with_wrong_clocks(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker
) -> None:
    """Producers an hour ahead and behind, and an observer whose clock is an hour ahead, then set two hours back, then
    two hours on: who lives stays up, who dies leaves within two TTLs of observed time, and a later start has the id
    although its term is the lower one.
    """
    clocks = {name: Clock(tmp_path / name, hours) for name, hours in HOURS.items()}
    observer = Clock(tmp_path / "observer", 1)
    said = {id: one(id, heartbeat=TTL / 3, ttl=TTL) for id in (*HOURS, "dies")}
    async with (
        adsumd(tmp_path / "data", "--nats", nats.url, env=observer.env) as daemon,
        owner(nats.url, said["ahead"], env=clocks["ahead"].env) as ahead,
        owner(nats.url, said["behind"], env=clocks["behind"].env),
        owner(nats.url, said["right"]),
        owner(nats.url, said["dies"], env=clocks["ahead"].env) as dies,
    ):
        for id in ("dies", *HOURS):
            await until(lambda id=id: topology(broker, key(id)), is_up)
        await dies.kill()
        died = await tick_number(broker)
        await ticks(broker, 1)
        observer.set(-1)
        await until(lambda: topology(broker, key("dies")), is_gone, seconds=30)
        assert await tick_number(broker) - died <= 2 * TTL + 3
        observer.set(1)
        await ticks(broker, 2)
        *_, expired = await events_of(broker, key("dies"))
        assert expired.id > new_id(), "the observer's clock is wrong: its verdict's id is of the next hour"
        for id in HOURS:
            assert is_up(await topology(broker, key(id)))
            assert not any(isinstance(word, Lapsed | Expired) for word in await events_of(broker, key(id)))
        async with owner(nats.url, said["ahead"], env=clocks["behind"].env) as later:
            term = await later.reaches("ahead", "registered")
            before = await ahead.reaches("ahead", "superseded")
            assert term < before, "the earlier life's id is of a later hour"
            await ticks(broker, 2)
            seen = await until(lambda: topology(broker, key("ahead")), is_up)
            assert seen is not None
            assert seen.term == term
            assert [type(word) for word in await events_of(broker, key("ahead"))] == [Registered, Registered]
        assert daemon.process.returncode is None


@needs_faketime
@pytest.mark.long
async def test_row_08_a_new_log_made_by_a_clock_that_is_behind(tmp_path: Path) -> None:
    """The data of a registry is lost, and its successor's clock is an hour behind, so that its epoch is lower: services
    register again, and caches follow, all the same.
    """
    data = tmp_path / "data"
    async with AsyncExitStack() as stack:
        async with adsumd(data, *FREE) as daemon:
            url = daemon.url
            process = await stack.enter_async_context(owner(url, one("a")))
            registry = await stack.enter_async_context(connect(url))
            orders = await stack.enter_async_context(registry.directory("orders"))
            before = await until(lambda: orders.get("orders", "a"))
        shutil.rmtree(data)
        clock = Clock(tmp_path / "clock", -1)
        async with adsumd(data, "--listen", url.removeprefix("nats://"), env=clock.env):
            is_new = lambda seen: seen is not None and seen.epoch != before.epoch  # noqa: E731
            after = await until(lambda: orders.get("orders", "a"), is_new, seconds=40)
            assert after.epoch < before.epoch
            assert process.alive
            assert process.states("a")[-1] == ("registered", after.term)
            await until(lambda: orders.state, lambda state: state == "live")
