"""Wrong clocks and clocks that are set: they change neither who is alive nor what comes after what."""

from __future__ import annotations

from pathlib import Path

from adsum.events.broker import Broker
from adsum.events.lifecycle import Expired, Lapsed, Registered
from adsum.projector.embedded import EmbeddedBroker
from tests.clocks import Clock, needs_faketime
from tests.daemons import adsumd, topology
from tests.making import key
from tests.waiting import until

from .looking import is_gone, is_up, tick_number, ticks, words
from .owners import TTL, one, owner

HOURS = {"ahead": 1.0, "behind": -1.0, "right": 0.0}


@needs_faketime
async def test_row_08_producers_and_observer_with_wrong_clocks(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker
) -> None:
    """Producers an hour ahead and behind, and an observer whose clock is an hour ahead, then set an hour back, then
    right: who lives stays up, who dies leaves within two TTLs of observed time, and a later start has the id although
    its term is the lower one.
    """
    clocks = {name: Clock(tmp_path / name, hours) for name, hours in HOURS.items()}
    observer = Clock(tmp_path / "observer", 1)
    async with (
        adsumd(tmp_path / "data", "--nats", nats.url, env=observer.env) as daemon,
        owner(nats.url, one("ahead"), env=clocks["ahead"].env) as ahead,
        owner(nats.url, one("behind"), env=clocks["behind"].env),
        owner(nats.url, one("right")),
        owner(nats.url, one("dies"), env=clocks["ahead"].env) as dies,
    ):
        for id in ("dies", *HOURS):
            await until(lambda id=id: topology(broker, key(id)), is_up)
        await ticks(broker, 2)
        observer.set(-1)
        await ticks(broker, 2)
        await dies.kill()
        died = await tick_number(broker)
        await until(lambda: topology(broker, key("dies")), is_gone, seconds=30)
        assert await tick_number(broker) - died <= 2 * TTL + 3
        observer.set(0)
        registered, *_, expired = await words(broker, key("dies"))
        assert expired.id < registered.id, "the verdict's id is of an earlier hour: nobody minds"
        for id in HOURS:
            assert is_up(await topology(broker, key(id)))
            assert not any(isinstance(word, Lapsed | Expired) for word in await words(broker, key(id)))
        async with owner(nats.url, one("ahead"), env=clocks["behind"].env) as later:
            term = await later.reaches("ahead", "registered")
            before = await ahead.reaches("ahead", "superseded")
            assert term < before, "the earlier life's id is of a later hour"
            await ticks(broker, 2)
            seen = await until(lambda: topology(broker, key("ahead")), is_up)
            assert seen is not None
            assert seen.term == term
            assert [type(word) for word in await words(broker, key("ahead"))] == [Registered, Registered]
        assert daemon.process.returncode is None
