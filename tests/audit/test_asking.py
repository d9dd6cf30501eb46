"""Asking real daemons what happened: whole answers in pages, from any of them, at one revision; and clear refusals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from adsum.clients import (
    BeforeLog,
    BrokerUnavailable,
    EventsAsked,
    History,
    Moment,
    NobodyAnswers,
    NotYet,
    QuestionRefused,
    Version,
    VersionsAsked,
    connect,
)
from adsum.events import subjects
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.codec import encode
from adsum.events.questions import ENDPOINTS, Page, WorldAsked
from adsum.events.streams import EVENTS
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import AdsumDaemon, Service, adsumd
from tests.databases import PostgresServer, postgres, postgres_server
from tests.making import description, key, registered
from tests.servers import Server
from tests.waiting import until

__all__ = ["postgres", "postgres_server"]


async def crowd(broker: Broker, count: int, service: str = "orders") -> None:
    """So many registrations in the log, whose owners say nothing more (their TTL is long)."""
    said = description(heartbeat=60.0, ttl=1500.0, metadata={"note": "x" * 200})
    stored = [
        await broker.store_later(EVENTS, subjects.event(key(f"i-{number}", service)), encode(registered(said)), {})
        for number in range(count)
    ]
    await asyncio.wait_for(asyncio.gather(*stored), 30)


async def folded(history: History, revision: int) -> None:
    """Wait until whoever answers has folded so far."""
    await until(lambda: history.status(), lambda status: status.revision >= revision, seconds=30)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[AdsumDaemon]:
    """A daemon with a broker of its own."""
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as running:
        yield running


@pytest.fixture
async def asker(daemon: AdsumDaemon) -> AsyncIterator[Broker]:
    """A connection to its broker."""
    connection = Broker.open(BrokerSettings(url=daemon.url), "asker")
    await connection.ready(10)
    yield connection
    await connection.close()


# ---- whole answers


async def test_a_long_answer_is_whole_and_at_one_revision_whatever_is_said_meanwhile(asker: Broker) -> None:
    """Three thousand instances are more than a message holds; while the pages are read others come and go."""
    history = History(asker)
    await crowd(asker, 3_000)
    await folded(history, 3_000)
    read: list[Page[Version]] = []
    async for page in history.pages(WorldAsked(limit=5_000)):
        read.append(page)
        late = Service(asker, key(f"late-{len(read)}"), heartbeat=60.0, ttl=1500.0)
        await folded(history, await late.register())
    assert len(read) >= 3
    assert {page.until for page in read} == {3_000}
    assert [page.revision for page in read] == list(range(3_000, 3_000 + len(read)))  # each tells how far it knows
    assert sorted(version.id for page in read for version in page.items) == sorted(f"i-{n}" for n in range(3_000))
    now = await history.world(service="orders")
    assert len(now.items) == 3_000 + len(read)
    assert (now.next, now.since, now.until) == (0, 3_000 + len(read), 3_000 + len(read))


async def test_the_life_of_an_instance_and_what_was_said_of_it(asker: Broker) -> None:
    history, who = History(asker), Service(asker, key("a"), heartbeat=60.0, ttl=1500.0)
    await Service(asker, key("b"), heartbeat=60.0, ttl=1500.0).register()
    await who.register()
    await folded(history, await who.deregister())
    life = [version async for version in history.versions(VersionsAsked(namespace="default", service="orders", id="a"))]
    assert [(one.began_by, one.began_revision, one.ended_by, one.ended_revision) for one in life] == [
        ("registered", 2, "deregistered", 3)
    ]
    events = [one async for one in history.events(EventsAsked(id="a", limit=1))]
    assert [msgspec.json.decode(one.event)["type"] for one in events] == ["registered", "deregistered"]
    then = await history.world(Moment(time=events[0].time))
    assert (then.until, sorted(one.id for one in then.items)) == (2, ["a", "b"])
    assert [one.id for one in (await history.world()).items] == ["b"]


async def test_a_broker_that_takes_small_messages_gets_small_pages(tmp_path: Path) -> None:
    server = await Server(tmp_path / "server", "max_payload: 16384").start()
    async with adsumd(tmp_path / "data", "--nats", server.url), connect(server.url) as registry:
        await registry.broker.ready(10)
        history = registry.history()
        await crowd(registry.broker, 100)
        await folded(history, 100)
        assert len([page async for page in history.pages(VersionsAsked())]) > 3
        assert len((await history.world()).items) == 100
    await server.stop()


# ---- any daemon


async def test_an_answer_goes_on_when_the_daemon_that_began_it_stands_still_or_is_killed(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker
) -> None:
    """Each has a catalog of its own; whoever is asked for the next page gives it at the revision of the first."""
    history = History(broker, timeout=30)
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(adsumd(tmp_path / name, "--nats", nats.url)) for name in ("one", "other")
        ]
        await crowd(broker, 40)
        await folded(history, 40)
        seen: list[str] = []
        async for page in history.pages(VersionsAsked(limit=4)):
            seen += [version.id for version in page.items]
            if len(seen) == 8:
                one.signal(signal.SIGSTOP)
            elif len(seen) == 16:
                one.signal(signal.SIGCONT)
            elif len(seen) == 24:
                other.process.kill()
        assert seen == [f"i-{number}" for number in range(40)]


async def test_both_daemons_on_a_shared_database_answer_and_say_so_while_it_is_away(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, postgres_server: PostgresServer, postgres: str
) -> None:
    history = History(broker)
    options = ("--nats", nats.url, "--catalog", postgres)
    async with adsumd(tmp_path / "one", *options), adsumd(tmp_path / "other", *options):
        leads: dict[str, bool] = {}

        async def both() -> dict[str, bool]:
            try:
                status = await history.status()
                leads[status.daemon] = status.leads
            except BrokerUnavailable:
                pass  # none has begun with this log yet
            return leads

        await until(both, lambda found: sorted(found.values()) == [False, True], seconds=30)
        await crowd(broker, 10)
        await folded(history, 10)
        worlds = [await history.world(Moment(revision=10)) for _ in range(8)]
        assert {tuple(one.id for one in world.items) for world in worlds} == {tuple(f"i-{n}" for n in range(10))}
        postgres_server.crash()
        try:
            with pytest.raises(BrokerUnavailable, match="the catalog postgresql://"):
                await History(broker, timeout=1).world()
        finally:
            postgres_server.start()
        await until(lambda: answered(history), seconds=30)


async def answered(history: History) -> bool:
    try:
        return len((await history.world()).items) == 10
    except BrokerUnavailable:
        return False


async def test_it_answers_again_after_the_broker_was_away(tmp_path: Path) -> None:
    server = await Server(tmp_path / "server").start()
    async with adsumd(tmp_path / "data", "--nats", server.url) as daemon, connect(server.url) as registry:
        await registry.broker.ready(10)
        before = await registry.history().status()
        await server.kill()
        await until(lambda: "the connection was lost" in daemon.stderr)
        await server.start()

        async def status() -> object:
            try:
                return (await registry.history().status()).daemon
            except BrokerUnavailable as error:
                return error

        await until(status, lambda found: found == before.daemon, seconds=20)
        await server.kill()
        await daemon.stop()  # also where nobody takes its goodbye
        assert "Traceback" not in daemon.stderr
    await server.stop()


# ---- refusals


async def test_where_nobody_answers_that_is_said_at_once(broker: Broker) -> None:
    history = History(broker, timeout=60)
    async with asyncio.timeout(30):
        with pytest.raises(
            NobodyAnswers, match=r"no adsumd answers questions about the past \(adsum.v1._all.ask.world"
        ):
            await history.world()
        with pytest.raises(NobodyAnswers):
            await history.status("default")


async def test_what_cannot_be_known_is_refused_by_the_same_name_here_as_there(asker: Broker) -> None:
    history = History(asker)
    await folded(history, await Service(asker, key(), heartbeat=60.0, ttl=1500.0).register())
    with pytest.raises(NotYet, match=r"revision 9 is in the future, or not folded yet: the catalog sqlite:///"):
        await history.world(Moment(revision=9))
    with pytest.raises(NotYet, match=r"2286-11-20T17:46:40.000Z is in the future: it is 20"):
        await history.world(Moment(time=1e10))
    with pytest.raises(BeforeLog, match=r"nothing was logged at 2001-09-09T01:46:40.000Z or before: the log begins at"):
        await history.world(Moment(time=1e9))


@pytest.mark.parametrize(
    ("endpoint", "namespace", "data", "told"),
    [
        ("world", "", b"junk", "the question cannot be read: JSON is malformed"),
        ("world", "", b"[" * 100_000, "the question cannot be read"),
        ("events", "", b'{"limit": "many"}', r"the question cannot be read: Expected `int`, got `str` - at `\$.limit`"),
        ("events", "", b'{"limit": 0}', "limit 0: must be a whole number from 1 on"),
        ("events", "", b'{"types": ["expire"]}', "'expired' would do"),
        ("history", "default", b'{"namespace": "staging"}', r"ask at adsum\.v1\.staging\.ask"),
        ("history", "No-Name", b"", "namespace 'No-Name': must be 1 to 63"),
    ],
)
async def test_a_question_that_cannot_be_answered_is_refused(
    asker: Broker, endpoint: str, namespace: str, data: bytes, told: str
) -> None:
    answer = await asker.request(subjects.ask(endpoint, namespace), data)
    assert answer.headers is not None
    assert answer.headers["Nats-Service-Error-Code"] == "400"
    with pytest.raises(QuestionRefused, match=told):
        raise QuestionRefused(answer.headers["Nats-Service-Error"])


# ---- for any tool of NATS


async def test_any_tool_of_nats_finds_the_service_with_its_schemas_and_figures(asker: Broker) -> None:
    await folded(History(asker), await Service(asker, key(), heartbeat=60.0, ttl=1500.0).register())

    async def told(verb: str) -> dict:
        names = (".adsum",) if verb == "STATS" else ("", ".adsum")  # what is counted may change between two looks
        found = [(await asker.request(f"$SRV.{verb}{name}", b"")).data for name in names]
        assert len(set(found)) == 1
        return msgspec.json.decode(found[0])

    ping, info = await told("PING"), await told("INFO")
    assert (ping["type"], ping["name"]) == ("io.nats.micro.v1.ping_response", "adsum")
    own = (await asker.request(f"$SRV.PING.adsum.{ping['id']}", b"")).data
    assert msgspec.json.decode(own) == ping
    assert [endpoint["name"] for endpoint in info["endpoints"]] == list(ENDPOINTS)
    for endpoint in info["endpoints"]:
        assert endpoint["subject"] == subjects.asks(endpoint["name"])
        schemas = {name: msgspec.json.decode(schema) for name, schema in endpoint["metadata"].items()}
        assert set(schemas) == {"response"} | ({"request"} if endpoint["name"] != "status" else set())
        assert all("$defs" in schema for schema in schemas.values())

    page = msgspec.json.decode((await asker.request("adsum.v1.default.ask.instances", b"")).data)
    assert [item["id"] for item in page["items"]] == ["a"]
    await asker.publish("adsum.v1.default.ask.instances", b"")  # nobody wants to know
    await asker.request("adsum.v1.default.ask.instances", b"junk")

    async def figures() -> dict:
        return (await told("STATS"))["endpoints"][0]

    found = await until(figures, lambda figures: figures["num_requests"] == 3)
    assert (found["name"], found["num_errors"], "cannot be read" in found["last_error"]) == ("instances", 1, True)
    assert found["average_processing_time"] > 0
