"""Reports and probes: a real adsumd, real servers that are killed, paused and closed, and callers that lie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.clients import Instance, Registration, Registry, connect
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_tick, encode
from adsum.events.ids import new_id
from adsum.events.lifecycle import Event, Health, HealthChanged, Registered
from adsum.events.log import last_word, say
from adsum.events.names import Key
from adsum.events.signals import Report, Tick
from adsum.events.streams import BEATS
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.leader import RESIGNED
from adsum.projector.probing import MOST_CALLERS
from tests.cli.programs import Adsum
from tests.daemons import AdsumDaemon, adsumd, events_of, start_adsumd, topology
from tests.faults.catalogs import rows
from tests.making import OPERATOR, key
from tests.peers.callee import Callee, callee
from tests.waiting import until

KEY = key("o-1")
HEALTH = {"health.main": "/health"}


@pytest.fixture
async def server() -> AsyncIterator[Callee]:
    """A server to be called."""
    async with callee() as one:
        yield one


@pytest.fixture
async def daemon(tmp_path: Path, nats: EmbeddedBroker, broker: Broker) -> AsyncIterator[AdsumDaemon]:
    """An adsumd."""
    async with adsumd(tmp_path / "data", "--nats", nats.url) as one:
        yield one


@pytest.fixture
async def registry(nats: EmbeddedBroker) -> AsyncIterator[Registry]:
    """A process that owns instances and calls others."""
    async with connect(nats.url, name="caller-1") as one:
        yield one


def owned(registry: Registry, server: Callee, id: str = "o-1", **more: str) -> Registration:
    return registry.register("orders", id=id, host="127.0.0.1", port=server.port, metadata=more)


async def tick(broker: Broker) -> Tick:
    raw = await broker.last_message(BEATS, subjects.TICK)
    return decode_tick(raw.data or b"") if raw is not None else Tick(leader=RESIGNED, number=0)


async def present(broker: Broker, of: Key = KEY) -> Instance:
    found = await until(lambda: topology(broker, of))
    assert isinstance(found, Instance)
    return found


async def is_told(broker: Broker, health: Health, of: Key = KEY, seconds: float = 40.0) -> Instance:
    """Wait until an instance is told to be in this health."""

    async def look() -> Instance | None:
        found = await topology(broker, of)
        return found if isinstance(found, Instance) and found.health == health else None

    found = await until(look, seconds=seconds)
    assert found is not None
    return found


async def report(broker: Broker, about: Instance, by: str = "somebody", **other: object) -> None:
    """A report as any caller could send it, as often as it likes."""
    said = {"by": by, "term": about.term, "endpoint": "main", "reason": "refused"} | other
    await broker.publish(subjects.report(about.key), encode(Report(**said)))  # type: ignore[arg-type]


async def counted(broker: Broker, reports: int = 0, probes: int = 0, ticks: int = 0) -> Tick:
    """Wait until a leader has counted so much, and then for some ticks more."""
    enough = await until(
        lambda: tick(broker), lambda one: one.reports >= reports and one.probes >= probes, seconds=30.0
    )
    return await until(lambda: tick(broker), lambda one: one.number >= enough.number + ticks, seconds=30.0)


async def unreachable(broker: Broker, many: int) -> Tick:
    """Wait until a tick says that so many are critical by its leader's probes."""
    return await until(lambda: tick(broker), lambda one: one.unreachable == many, seconds=30.0)


async def healths(broker: Broker, of: Key = KEY) -> list[tuple[str, str, str]]:
    """(who, health, reason) of every word on an instance's health."""
    return [
        (event.by.kind, event.health, event.reason)
        for event in await events_of(broker, of)
        if isinstance(event, HealthChanged)
    ]


async def operator_says(broker: Broker, health: Health, reason: str) -> None:
    word = await last_word(broker, KEY)
    assert word is not None
    assert word.event is not None
    event = HealthChanged(id=new_id(), term=word.event.term, by=OPERATOR, health=health, reason=reason)
    await say(broker, KEY, event, word.sequence)


async def test_who_is_killed_is_critical_with_the_evidence_and_back_when_it_answers(
    daemon: AdsumDaemon, tmp_path: Path, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with registry.directory("orders") as orders, owned(registry, server) as me:
        await server.kill()
        peer = (await until(lambda: orders.instances(routable=True)))[0]
        assert await registry.report(peer, reason="connection refused")
        assert not await registry.report(peer, reason="again at once")
        told = await is_told(broker, "critical")
        tried = f"connect to 127.0.0.1:{server.port}"
        assert told.reason == f"unreachable: {tried}: connection refused, 2 times; reported by 1 caller"
        assert await until(lambda: not orders.instances(routable=True))
        word = (await events_of(broker, KEY))[-1]
        assert isinstance(word, HealthChanged)
        assert word.by.kind == "prober"
        assert word.evidence is not None
        assert (word.evidence.tried, word.evidence.found, word.evidence.callers) == (tried, "connection refused", 1)
        await unreachable(broker, 1)
        [(stored,)] = await rows(f"sqlite:///{tmp_path / 'data' / 'catalog.db'}", "SELECT health FROM instances")
        assert stored == "critical"
        await server.start()
        assert (await is_told(broker, "passing")).reason == ""
        assert await until(lambda: orders.instances(routable=True))
        assert me.standing.health == "passing"
    assert [who for who, _, _ in await healths(broker)] == ["prober", "prober"], "the owner said nothing to it"


async def test_who_is_paused_is_noticed_where_a_path_to_ask_at_is_declared(
    daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with owned(registry, server, **HEALTH), owned(registry, server, "o-2"), owned(registry, server, "o-3"):
        peers = [await present(broker, key(id)) for id in ("o-1", "o-2", "o-3")]
        server.pause()
        for peer in peers:
            await registry.report(peer)
        told = await is_told(broker, "critical")
        assert f"GET http://127.0.0.1:{server.port}/health: no answer within 2 s" in told.reason
        assert {(await present(broker, peer.key)).health for peer in peers[1:]} == {"passing"}, "its kernel answers"


async def test_a_liar_about_a_healthy_peer_is_counted_and_no_more(
    daemon: AdsumDaemon, nats: EmbeddedBroker, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with owned(registry, server):
        peer = await present(broker)
        while (await tick(broker)).probes < 2:  # past the rest after a probe: so it looks again, and finds the same
            await report(broker, peer, f"liar-{new_id()}")
            await asyncio.sleep(0.2)
        seen = await counted(broker, ticks=2)
        assert (seen.unreachable, await healths(broker)) == (0, [])
        assert (await present(broker)).revision == peer.revision
        shown = await Adsum(nats.url)("status")
        assert f"0 unreachable now ({seen.probes} probes for {seen.reports} reports)" in shown.out
    assert "critical" not in daemon.stderr


async def test_a_storm_of_reports_makes_one_probe(
    daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with owned(registry, server, **HEALTH):
        peer = await present(broker)
        server.pause()  # so that the probe lasts as long as the storm
        await report(broker, peer)
        await counted(broker, probes=1)
        for number in range(9_999):
            await report(broker, peer, f"caller-{number}")
        await broker.flush()
        server.resume()
        seen = await counted(broker, reports=10_000, ticks=3)
        assert (seen.probes, server.connections, await healths(broker)) == (1, 1, [])


async def test_reports_about_whom_nobody_calls_or_knows_are_counted_and_nothing_is_probed(
    daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with owned(registry, server) as me, owned(registry, server, "o-2") as other:
        peer, drained = await present(broker), await present(broker, key("o-2"))
        await other.drain()
        await report(broker, peer, term=new_id())
        await report(broker, peer, endpoint="admin")
        await report(broker, peer, ago=3600.0)
        await report(broker, drained)
        await broker.publish(subjects.report(key("nobody")), encode(Report(by="x", term=me.term, endpoint="main")))
        await broker.publish(subjects.report(KEY), b"{")
        seen = await counted(broker, reports=6, ticks=3)
        assert (seen.reports, seen.probes, server.connections) == (6, 0, 0)


async def test_the_owners_warning_comes_back_and_what_was_said_meanwhile_stands(
    daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with owned(registry, server) as me:
        await me.health("warning", "disk nearly full")
        peer = await is_told(broker, "warning")
        await server.kill()
        await report(broker, peer)
        await is_told(broker, "critical")
        assert await me.update(metadata={"rack": "b"})
        assert await me.mode("maintenance", "new disk")
        await server.start()
        told = await is_told(broker, "warning")
        assert (told.reason, told.mode, told.metadata) == ("new disk", "maintenance", {"rack": "b"})
        assert (me.standing.health, me.standing.health_reason) == ("warning", "disk nearly full")
    assert [(who, health) for who, health, _ in await healths(broker)] == [
        ("owner", "warning"),
        ("prober", "critical"),
        ("prober", "warning"),
    ]


async def test_the_owners_next_word_on_its_health_replaces_the_probers(
    daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with owned(registry, server) as me:
        await server.kill()
        await report(broker, await present(broker))
        await is_told(broker, "critical")
        await unreachable(broker, 1)
        assert await me.health("critical", "I know")
        await until(lambda: present(broker), lambda one: one.reason == "I know")
        await server.start()
        await unreachable(broker, 0)
        await counted(broker, ticks=3)
        assert [who for who, _, _ in await healths(broker)] == ["prober", "owner"]
        assert (await present(broker)).reason == "I know"


async def test_what_an_operator_says_of_health_stands(
    daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with owned(registry, server) as me:
        await server.kill()
        await operator_says(broker, "warning", "adsumd cannot reach it, all others can")
        await report(broker, await is_told(broker, "warning"))
        seen = await counted(broker, probes=2, ticks=3)
        assert (seen.unreachable, [who for who, _, _ in await healths(broker)]) == (0, ["operator"])
        await until(lambda: me.standing.health, lambda health: health == "warning")


async def test_a_new_life_begins_clean(daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee) -> None:
    async with owned(registry, server) as me:
        await server.kill()
        await report(broker, await present(broker))
        await is_told(broker, "critical")
        await unreachable(broker, 1)
        assert me.standing.health == "passing"
    async with owned(registry, server) as again:
        assert (await is_told(broker, "passing")).term == again.term
        await unreachable(broker, 0)


@pytest.mark.parametrize("dsn", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
async def test_the_next_leader_goes_on_with_whom_the_last_one_left_critical(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, registry: Registry, server: Callee, dsn: str
) -> None:
    shared = ("--catalog", dsn) if dsn.startswith("postgres") else ()
    async with AsyncExitStack() as stack:
        daemons = [await stack.enter_async_context(adsumd(tmp_path / n, "--nats", nats.url, *shared)) for n in "ab"]
        me = await stack.enter_async_context(owned(registry, server))
        await me.health("warning", "disk nearly full")
        await server.kill()
        peer = await is_told(broker, "warning")
        await report(broker, peer)
        await is_told(broker, "critical")
        first = (await tick(broker)).leader
        [leader] = [one for one in daemons if "is critical: unreachable" in one.stderr]
        leader.process.kill()
        await leader.ended()
        seen = await until(lambda: tick(broker), lambda one: one.leader != first and one.unreachable == 1, seconds=30.0)
        assert seen.reports == 0
        await server.start()
        assert (await is_told(broker, "warning")).reason == "disk nearly full"
    words = [event for event in await events_of(broker, KEY) if isinstance(event, HealthChanged)]
    assert [event.by.kind for event in words] == ["owner", "prober", "prober"]
    assert words[1].by != words[2].by


IMPATIENT = """
import sys
from adsum.projector import prober
from adsum.projector.main import main
prober.SAY_AGAIN = 0.0
sys.exit(main())
"""


@pytest.mark.long
async def test_a_critical_that_lasts_is_said_again_and_changes_nothing(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, registry: Registry, server: Callee
) -> None:
    """Else a trim of the log might take the only word that says whose it is."""
    daemon = await start_adsumd(tmp_path / "data", ("--nats", nats.url), program=("-c", IMPATIENT))
    try:
        await daemon.ready()
        async with owned(registry, server) as me:
            await me.health("warning", "disk nearly full")
            await server.kill()
            await report(broker, await is_told(broker, "warning"))
            told = await is_told(broker, "critical")
            said = await until(lambda: healths(broker), lambda words: len(words) > 2, seconds=30.0)
            assert said[1] == said[2]
            assert (await present(broker)).revision == told.revision
            await server.start()
            assert (await is_told(broker, "warning")).reason == "disk nearly full"
    finally:
        await daemon.stop()


async def test_probes_take_at_most_half_of_a_service(
    daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee
) -> None:
    """As when it is adsumd that is cut off."""
    ids = [f"o-{number}" for number in range(4)]
    async with AsyncExitStack() as stack:
        for id in ids:
            await stack.enter_async_context(owned(registry, server, id))
        peers = [await present(broker, key(id)) for id in ids]
        await server.kill()
        for peer in peers:
            for number in range(MOST_CALLERS + 4):
                await report(broker, peer, f"caller-{number}")
        await until(lambda: daemon.stderr.count("too many of its service are unreachable from here") >= 2)
        said = await counted(broker, ticks=2)
        now = [(await present(broker, peer.key)).health for peer in peers]
        assert (said.unreachable, sorted(now)) == (2, ["critical", "critical", "passing", "passing"])
        assert f"reported by {MOST_CALLERS} callers or more" in daemon.stderr


async def test_a_daemon_may_be_told_not_to_probe(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, registry: Registry, server: Callee
) -> None:
    config = tmp_path / "adsumd.toml"
    config.write_text("[discovery]\nprobes = false\n")
    async with (
        adsumd(tmp_path / "data", "--nats", nats.url, "--config", str(config)),
        owned(registry, server, **HEALTH),
    ):
        await server.kill()
        await report(broker, await present(broker))
        await broker.flush()
        seen = await counted(broker, ticks=3)  # two probes need one second
        assert (seen.reports, seen.probes, await healths(broker)) == (0, 0, [])


def kinds(events: list[Event]) -> list[type[Event]]:
    return [type(event) for event in events]


async def test_a_flood_about_many_who_are_healthy_holds_up_nobody(
    daemon: AdsumDaemon, broker: Broker, registry: Registry, server: Callee
) -> None:
    async with owned(registry, server):
        peer = await present(broker)
        for number in range(3_000):
            await broker.publish(
                subjects.report(key(f"x-{number}")), encode(Report(by="x", term=peer.term, endpoint="main"))
            )
        async with owned(registry, server, "o-2"):
            await present(broker, key("o-2"))
        assert kinds(await events_of(broker, KEY)) == [Registered]
        assert (await counted(broker, reports=3_000)).probes == 0
