"""One id, several lives: what is said of one has no effect on another, whoever says it and however late."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, Expired, Lapsed, Registered
from adsum.events.log import last_word, say
from adsum.events.signals import Heartbeat, Instance
from adsum.events.streams import EVENTS
from tests.cli.programs import Adsum, types
from tests.daemons import AdsumDaemon, Service, adsumd, events_of, topology
from tests.making import OWNER, key
from tests.projector.test_daemon import FREE, connected
from tests.waiting import until

from .looking import beats, is_gone, is_up, ticks
from .owners import TTL, one, owner


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[AdsumDaemon]:
    """A daemon with everything embedded."""
    async with adsumd(tmp_path / "data", *FREE) as running:
        yield running


@pytest.fixture
async def bus(daemon: AdsumDaemon) -> AsyncIterator[Broker]:
    """A connection to its broker."""
    broker = await connected(daemon.url)
    yield broker
    await broker.close()


async def test_row_02_the_late_words_of_an_old_process(daemon: AdsumDaemon, bus: Broker) -> None:
    """No heartbeat brings back who expired; heartbeats and goodbyes of the old process do nothing to the next life
    of its id, nor do they keep it from expiring when it dies.
    """
    a = key("a")
    async with owner(daemon.url, one("a")) as old:
        first = await old.reaches("a", "registered")
        old.signal(signal.SIGSTOP)
        await until(lambda: topology(bus, a), is_gone)
        await bus.publish(subjects.beat(a, first), encode(Heartbeat(10_000)))
        await ticks(bus, 1)
        assert is_gone(await topology(bus, a))
        assert [type(word) for word in await events_of(bus, a)] == [Registered, Lapsed, Expired]
        async with owner(daemon.url, one("a")) as new:
            second = await new.reaches("a", "registered")
            old.signal(signal.SIGCONT)
            await old.reaches("a", "superseded")
            await old.leave()
            last = await last_word(bus, a)
            assert last is not None
            await say(bus, a, Deregistered(id=new_id(), term=first, by=OWNER), last.sequence)
            await bus.store(EVENTS, subjects.event(a), b"unreadable", {})
            await bus.publish(subjects.beat(a, first), encode(Heartbeat(20_000)))
            await ticks(bus, 2)
            seen = await until(lambda: topology(bus, a), is_up)
            assert seen is not None
            assert (seen.term, new.states("a")) == (second, [("registered", second)])
            await new.kill()
            gone = await until(lambda: topology(bus, a), is_gone)
            assert gone is not None
            assert gone.term == second


async def test_row_17_several_processes_with_one_id(daemon: AdsumDaemon, bus: Broker) -> None:
    """The later start has the id, each earlier one is told so and stops for good, also when the later one leaves:
    nobody registers twice, and the log tells who did.
    """
    a, adsum = key("a"), Adsum(daemon.url)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(owner(daemon.url, one("a"), name="first"))
        term = await first.reaches("a", "registered")
        others = [await stack.enter_async_context(owner(daemon.url, one("a"), name=name)) for name in ("b", "c")]
        await first.reaches("a", "superseded")
        assert (await first.logs("superseded")).startswith("ERROR ")
        beaten = await beats(bus, a, term)
        left = await until(
            lambda: [other for other in others if "superseded" in {state for state, _ in other.states("a")}],
            lambda found: len(found) == 1,
        )
        [winner] = [other for other in others if other not in left]
        await ticks(bus, 3)
        registered = [word for word in await events_of(bus, a) if isinstance(word, Registered)]
        assert [word.by.name for word in registered][:1] == ["first"]
        assert len(registered) == len({word.term for word in registered}) == 3
        assert winner.states("a")[-1] == ("registered", registered[-1].term)
        assert await beats(bus, a, term) == beaten
        await winner.leave()
        await until(lambda: topology(bus, a), is_gone)
        await ticks(bus, 1)
        told = await adsum.events("orders")
        assert types(told) == ["registered"] * 3 + ["deregistered"]
        assert sorted(event["author"]["name"] for event in told[:3]) == ["b", "c", "first"]
        assert all(process.alive for process in (first, *left))
    await adsum.stop()


async def test_row_26_an_old_and_a_new_process_beat_side_by_side(bus: Broker) -> None:
    """Told apart by term: the dead new life goes although the old process beats, the live one stays although the old
    one beats more, and last.
    """
    ids = ("dies", "lives")
    olds = {id: Service(bus, key(id), ttl=TTL) for id in ids}
    news = {id: Service(bus, key(id), ttl=TTL) for id in ids}

    async def beat_for_ever() -> None:
        while True:
            await news["lives"].beat()
            for old in olds.values():
                await old.beat()
            await asyncio.sleep(TTL / 4)

    for old in olds.values():
        await old.register()
        old.counter = 1000
    for new in news.values():
        await new.register()
    beating = asyncio.create_task(beat_for_ever())
    gone = await until(lambda: topology(bus, key("dies")), is_gone)
    await ticks(bus, 2)
    beating.cancel()
    assert gone is not None
    assert gone.term == news["dies"].term
    seen = await topology(bus, key("lives"))
    assert isinstance(seen, Instance)
    assert seen.term == news["lives"].term
    assert [type(word) for word in await events_of(bus, key("lives"))] == [Registered, Registered]
