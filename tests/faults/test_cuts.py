"""Services that are cut off from the broker: they come back by themselves, and with what they are by then."""

from __future__ import annotations

import asyncio
from pathlib import Path

from adsum.clients import Directory, connect
from adsum.events.broker import Broker
from adsum.events.lifecycle import Expired, Registered, Updated
from adsum.events.signals import Instance, Topology
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import adsumd, events_of, topology
from tests.making import key
from tests.projector.test_daemon import connected
from tests.proxy import proxy_to
from tests.servers import Server
from tests.waiting import until

from .looking import beats, is_gone, is_up, ticks
from .owners import Owner, one, owner


def levels(process: Owner, id: str) -> list[str]:
    """The levels of what a process said of the trouble of one registration, in order."""
    of = f"/{id}: "
    return [line.split()[0] for line in process.log if of in line and ("trying again" in line or "failing for" in line)]


async def test_row_03_a_broker_that_is_away_for_ten_ttls(tmp_path: Path) -> None:
    """Nobody gives up: after ten TTLs without a broker every process is visible again, the same process in the same
    life, and has said WARNING at first and ERROR once it had lasted longer than its own TTL, as that is by then.
    """
    ttl, short = 0.6, {"heartbeat": 0.2, "ttl": 0.6}
    server = await Server(tmp_path / "nats").start()
    try:
        async with (
            adsumd(tmp_path / "data", "--nats", server.url),
            owner(server.url, one("a", **short), one("b", **short), ping=0.1) as first,
            owner(server.url, one("shortened", ttl=60), one("lengthened", **short), ping=0.1) as second,
        ):
            who = {"a": first, "b": first, "shortened": second, "lengthened": second}
            for id, process in who.items():
                await process.reaches(id, "registered")
            second.tell("shortened", "update", **short)
            second.tell("lengthened", "update", ttl=60)
            assert (await second.did("shortened", "update"))["in_log"]
            assert (await second.did("lengthened", "update"))["in_log"]
            lives = {id: process.states(id) for id, process in who.items()}
            await server.kill()
            await asyncio.sleep(10 * ttl)  # the outage
            said = {id: levels(process, id) for id, process in who.items()}
            for id in ("a", "b", "shortened"):
                assert said[id][:2] == ["WARNING", "ERROR"], said
            assert "ERROR" not in said["lengthened"], said
            await server.start()
            bus = await connected(server.url)
            for id, process in who.items():
                await _is_visible_again(bus, id, lives[id][-1][1])
                assert process.alive
                assert process.states(id) == lives[id]
            await bus.close()
    finally:
        await server.stop()


async def _is_visible_again(bus: Broker, id: str, term: str) -> None:
    beaten = await beats(bus, key(id), term)
    await until(lambda: beats(bus, key(id), term), lambda counter: counter > beaten, seconds=20)
    seen = await until(lambda: topology(bus, key(id)), is_up, seconds=20)
    assert seen is not None
    assert seen.term == term


async def test_row_04_updates_before_and_during_a_cut(tmp_path: Path, nats: EmbeddedBroker, broker: Broker) -> None:
    """What the owner said last stands after a reconnect, in the life that went on and in the one that expired
    meanwhile: no older description follows a newer one, neither in the log nor in what callers see.
    """
    async with (
        adsumd(tmp_path / "data", "--nats", nats.url),
        proxy_to(nats.url) as proxy,
        connect(nats.url) as registry,
        registry.directory("orders") as orders,
        owner(proxy.url, one("stays", ttl=60, wait=0.3), one("expires", wait=0.3)) as process,
    ):
        seen: dict[str, list[float]] = {"stays": [], "expires": []}
        following = asyncio.create_task(_note_weights(orders, seen))
        for id in seen:
            await process.reaches(id, "registered")
            process.tell(id, "update", weight=2)
            await until(
                lambda id=id: topology(broker, key(id)), lambda seen: isinstance(seen, Instance) and seen.weight == 2
            )
        proxy.blackhole("up")  # what is said now arrives, if ever, long after what is said later
        for id in seen:
            process.tell(id, "update", weight=3)
        await until(lambda: topology(broker, key("expires")), is_gone, seconds=20)
        proxy.cut()
        for id in seen:
            process.tell(id, "update", weight=4)
            process.tell(id, "health", health="warning", reason="alone")
            process.tell(id, "drain", reason="to be replaced", told=0)
        await process.did("expires", "drain")
        proxy.heal()
        for id in seen:
            await until(lambda id=id: topology(broker, key(id)), _is_as_said_last, seconds=20)
        await ticks(broker, 2)
        for id in seen:
            said = [
                word.instance.weight
                for word in await events_of(broker, key(id))
                if isinstance(word, Registered | Updated)
            ]
            assert said == sorted(said)
            assert said[-1] == 4.0
            assert seen[id] == sorted(seen[id])
            assert seen[id][-1] == 4.0
        assert [type(word) for word in await events_of(broker, key("expires"))].count(Expired) == 1
        assert len({term for _, term in process.states("stays")} - {""}) == 1
        following.cancel()


def _is_as_said_last(seen: Topology | None) -> bool:
    """Once all of it is said: a new life begins with its mode and health, their reasons follow."""
    said = ("draining", 4.0, "warning", "to be replaced")
    return isinstance(seen, Instance) and (seen.mode, seen.weight, seen.health, seen.reason) == said


async def _note_weights(orders: Directory, seen: dict[str, list[float]]) -> None:
    async for change in orders.changes():
        seen[change.instance.id].append(change.instance.weight)
