"""services, instances, log and status, on what a broker holds without any adsumd, and with one."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.description import Description, Endpoint, describe
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Lapsed, Registered, Silence
from adsum.events.log import say
from adsum.events.names import Key
from adsum.events.signals import Departed, Instance, Tick
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, read_epoch
from adsum.projector.embedded import EmbeddedBroker
from tests.waiting import until

from .programs import SCRIPTS, Adsum, types

FIELDS = {
    "namespace", "service", "id", "term", "revision", "endpoints", "capabilities", "metadata", "version", "zone",
    "weight", "liveness", "health", "mode", "routable",
}  # fmt: skip
EMPTY = describe([Endpoint(host="10.0.0.9", port=80)])


async def put(
    broker: Broker, service: str, id: str, said: Description = EMPTY, namespace: str = "default", **state: str
) -> Key:
    """An instance in the log and in the topology, as the projector would write it."""
    key, term = Key(namespace, service, id), new_id()
    revision = await say(broker, key, Registered(id=term, term=term, by=Author("owner", "host/1"), instance=said), 0)
    instance = Instance(
        epoch=await read_epoch(broker), revision=revision, **key._asdict(), term=term, endpoints=said.endpoints,
        capabilities=said.capabilities, metadata=said.metadata, version=said.version, zone=said.zone,
        weight=said.weight, heartbeat=said.heartbeat, ttl=said.ttl, **state,
    )  # fmt: skip
    await broker.store(TOPOLOGY, subjects.topology(key), encode(instance), {})
    return key


@pytest.fixture
async def fleet(broker: Broker) -> None:
    """Two services in all kinds of states, and another namespace."""
    ports = [Endpoint(host="10.0.0.1", port=8080), Endpoint(name="admin", host="::1", port=9000, protocol="http")]
    await put(broker, "orders", "a", describe(ports, capabilities=["payments", "refunds"], version="1.4", weight=2.5))
    await put(broker, "orders", "b", describe(ports[:1], metadata={"team": "\x1b[31mred\n"}), liveness="stale")
    await put(broker, "orders", "c", health="warning")
    await put(broker, "billing", "d", health="critical", mode="draining")
    await put(broker, "elsewhere", "e", namespace="staging")
    gone = await put(broker, "orders", "gone")
    tombstone = Departed(epoch=await read_epoch(broker), revision=99, **gone._asdict(), term=new_id(), reason="expired")
    await broker.store(TOPOLOGY, subjects.topology(gone), encode(tombstone), {})


async def test_instances_are_by_default_those_that_may_be_called(adsum: Adsum, fleet: None) -> None:
    result = await adsum("instances", "--json")
    assert [(one["service"], one["id"], one["routable"]) for one in result.json] == [
        ("orders", "a", True),
        ("orders", "c", True),
    ]
    everyone = (await adsum("instances", "--json", "--all")).json
    assert [one["id"] for one in everyone] == ["d", "a", "b", "c"]
    assert all(one.keys() >= FIELDS for one in everyone)
    assert everyone[1]["endpoints"] == [
        {"name": "main", "host": "10.0.0.1", "port": 8080, "protocol": "tcp"},
        {"name": "admin", "host": "::1", "port": 9000, "protocol": "http"},
    ]


async def test_instances_by_service_capability_and_namespace(adsum: Adsum, fleet: None) -> None:
    async def ids(*arguments: str) -> list[str]:
        return [one["id"] for one in (await adsum("instances", "--json", "--all", *arguments)).json]

    assert await ids("billing") == ["d"]
    assert await ids("--capability", "payments") == ["a"]
    assert await ids("billing", "--capability", "payments") == []
    assert await ids("--namespace", "staging") == ["e"]


async def test_plain_text_has_one_line_an_instance_and_columns_that_can_be_counted(adsum: Adsum, fleet: None) -> None:
    result = await adsum("instances", "--all")
    title, *lines = result.out.splitlines()
    assert title.split()[:4] == ["SERVICE", "ID", "ADDRESS", "STATE"]
    assert [line.split()[3] for line in lines] == ["critical,draining", "up", "stale", "up,warning"]
    assert lines[1].split()[2] == "main=10.0.0.1:8080,admin=[::1]:9000"
    assert lines[2].endswith("team=\\x1b[31mred\\n")  # what could steer a terminal is shown, not sent


async def test_nobody_is_an_empty_answer_and_says_who_was_perhaps_meant(adsum: Adsum, fleet: None) -> None:
    result = await adsum("instances", "ordrs", "--json")
    assert (result.code, result.json) == (0, [])
    assert "did you mean orders?" in result.err
    result = await adsum("instances", "billing")
    assert (result.code, result.out) == (0, "")
    assert "--all shows 1" in result.err


async def test_services_count_their_instances(adsum: Adsum, fleet: None) -> None:
    billing, orders = (await adsum("services", "--json")).json
    assert (billing["service"], billing["instances"], billing["routable"]) == ("billing", 1, 0)
    assert (billing["critical"], billing["draining"]) == (1, 1)
    assert (orders["instances"], orders["routable"], orders["stale"], orders["warning"]) == (3, 2, 1, 1)
    assert orders["capabilities"] == ["payments", "refunds"]
    assert [line.split()[:3] for line in (await adsum("services")).out.splitlines()[1:]] == [
        ["billing", "1", "0"],
        ["orders", "3", "2"],
    ]


async def test_the_log_tells_everything_and_stumbles_over_nothing(adsum: Adsum, broker: Broker) -> None:
    key = await put(broker, "orders", "a")
    silence = Silence(counter=7, silent=16.25, ttl=15)
    term = (await adsum.events())[0]["term"]
    await say(broker, key, Lapsed(id=new_id(), term=term, by=Author("reaper", "one"), evidence=silence), 1)
    for data in (b'{"type":"abolished"}', b"\xff\x00", b""):
        await broker.store(EVENTS, "adsum.v1.default.event.orders.odd", data, {})
    await put(broker, "billing", "b")
    events = await adsum.events()
    assert types(events) == ["registered", "lapsed", "unreadable", "unreadable", "unreadable", "registered"]
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5, 6]
    assert events[1]["author"] == {"kind": "reaper", "name": "one"}
    assert events[1]["evidence"] == {"counter": 7, "silent": 16.25, "ttl": 15.0}
    assert "abolished" in events[2]["reason"]
    assert {"time", "namespace", "service", "id", "term", "event"} <= events[0].keys()
    assert types(await adsum.events("billing")) == ["registered"]
    lines = (await adsum("log")).out.splitlines()
    assert len(lines) == 7
    assert lines[2].split()[4:6] == ["lapsed", "reaper"]
    assert lines[2].endswith("silent 16.2s after heartbeat 7, ttl 15s")
    assert lines[3].split()[4] == "unreadable"


async def test_of_a_service_that_is_not_there_a_note_is_all_that_is_printed(adsum: Adsum, fleet: None) -> None:
    for command in (["log"], ["instances"], ["log", "--json"]):
        result = await adsum(*command, "ordrs")
        assert (result.code, result.out, result.err.count("\n")) == (0, "", 1)
        assert result.err.endswith("in namespace default; did you mean orders?\n")


async def test_following_a_log_that_says_nothing_yet(adsum: Adsum, broker: Broker) -> None:
    follower = await adsum.start("log", "nosuch", "--follow")
    await follower.says("the log says nothing of nosuch in namespace default yet")
    assert follower.out == []
    await put(broker, "nosuch", "a")
    await follower.prints("registered")
    assert follower.out[0].split()[:2] == ["SEQUENCE", "TIME"]


async def test_a_pipe_gets_the_log_whole_with_its_columns_under_each_other(adsum: Adsum, broker: Broker) -> None:
    long = "a" * 60
    for service, id in (("x", "b"), (long, new_id())):
        await put(broker, service, id)
    assert (await adsum("deregister", "x", "b", "--reason", "wrong build " * 8)).code == 0
    result = await adsum("log", env=adsum.env | {"COLUMNS": "40"})
    title, *lines = result.out.splitlines()
    assert len(lines) == 3
    assert {line[title.index("DETAIL") - 2 : title.index("DETAIL")] for line in lines} == {"  "}
    assert [line[title.index("DETAIL") :][:10] for line in lines] == ["10.0.0.9:8", "10.0.0.9:8", "wrong buil"]
    assert [line[title.index("AUTHOR") :].split()[0].split(":")[0] for line in lines] == ["owner", "owner", "operator"]
    assert result.err == ""


async def test_following_the_log_tells_what_comes(adsum: Adsum, broker: Broker) -> None:
    await put(broker, "orders", "a")
    follower = await adsum.start("log", "--follow", "--json")
    await until(lambda: len(follower.out), lambda seen: seen == 1)
    await put(broker, "orders", "b")
    await until(lambda: len(follower.out), lambda seen: seen == 2)
    assert [event["id"] for event in follower.events] == ["a", "b"]


async def test_following_goes_on_when_the_broker_is_back(
    adsum: Adsum, broker: Broker, nats: EmbeddedBroker, tmp_path: Path
) -> None:
    await put(broker, "orders", "a")
    follower = await adsum.start("log", "--follow", "--json")
    await until(lambda: len(follower.out), lambda seen: seen == 1)
    await nats.stop()
    await follower.says("the connection was lost")
    again = await EmbeddedBroker.start(tmp_path / "broker", port=int(nats.url.rsplit(":", 1)[1]))
    try:
        await broker.ready(10)
        await put(broker, "orders", "b")
        await until(lambda: len(follower.out), lambda seen: seen == 2)
        assert [event["id"] for event in follower.events] == ["a", "b"]
        assert sum("connected to" in line for line in follower.err) == 2
    finally:
        await again.stop()


async def test_a_reader_that_had_enough_is_no_error(adsum: Adsum, broker: Broker) -> None:
    for number in range(200):
        await put(broker, "orders", f"i{number}")
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", f"set -o pipefail; {SCRIPTS}/adsum log --json | head -1; echo ${{PIPESTATUS[0]}}",
        env=adsum.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await shell.communicate()
    assert err == b""
    assert out.splitlines()[-1] in (b"0", b"141")  # 0 if the pipe took it all


async def test_closed_streams_are_no_error(adsum: Adsum) -> None:
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", f"{SCRIPTS}/adsum services --json {closed}",
            env=adsum.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, err = await shell.communicate()
        assert (shell.returncode, err) == (0, b"")


async def test_status_without_adsumd_says_what_to_do(adsum: Adsum, nats: EmbeddedBroker) -> None:
    result = await adsum("status", "--json")
    assert result.code == 1
    assert result.json["working"] is False
    assert result.json["leader"] is None
    assert "start adsumd" in result.json["problems"][0]


async def test_status_knows_a_leader_that_was_from_one_that_is(adsum: Adsum, broker: Broker) -> None:
    await put(broker, "orders", "a")
    await _tick(broker, 1)
    result = await adsum("status", "--json")
    assert result.code == 1
    leader = result.json["leader"]
    assert (leader["leader"], leader["leads"], leader["revision"]) == ("one", False, 0)
    assert leader["age"] >= 5
    assert result.json["lag"] == 1
    assert "no adsumd leads: one ticked last, " in result.json["problems"][0]
    assert "a daemon whose catalog does not answer does not lead" in result.json["problems"][0]
    ticking = asyncio.create_task(_tick_on(broker))
    try:
        text = await adsum("status")
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
    assert text.code == 0, text.out
    assert "1 behind the log's 1" in text.out.replace("(", "")
    assert "default/orders: too many fell silent at once" in text.out


async def test_status_names_nobody_once_the_lease_was_given_back(adsum: Adsum, broker: Broker) -> None:
    await _tick(broker, 1, leader="")
    result = await adsum("status", "--json")
    assert (result.code, result.json["leader"]["leader"], result.json["leader"]["leads"]) == (1, "", False)
    text = await adsum("status")
    assert "none; the last leader gave the lease back " in text.out
    assert "by ;" not in text.out
    assert "ticked" not in text.out


async def test_a_lease_given_back_while_it_looks_is_no_leader(adsum: Adsum, broker: Broker) -> None:
    await _tick(broker, 1)
    looking = asyncio.create_task(adsum("status", "--json"))
    giving = asyncio.create_task(_tick_on(broker, leader=""))
    try:
        result = await looking
    finally:
        giving.cancel()
        await asyncio.gather(giving, return_exceptions=True)
    assert (result.code, result.json["leader"]["leads"]) == (1, False)


async def test_status_shows_the_leader_short_and_says_when_more_may_be_held(adsum: Adsum, broker: Broker) -> None:
    leader = "0198c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10/abcdef123456"
    ticking = asyncio.create_task(_tick_on(broker, leader, tuple(f"default/s{at}" for at in range(20))))
    try:
        text = await adsum("status")
        assert (await adsum("status", "--json")).json["leader"]["leader"] == leader
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
    assert "0198c5…1d9a10 (run 123456) (ticking" in text.out
    assert "default/s19 and perhaps more: too many" in text.out


async def _tick_on(broker: Broker, leader: str = "one", held: tuple[str, ...] = ("default/orders",)) -> None:
    for number in itertools.count(2):
        await _tick(broker, number, leader, held)
        await asyncio.sleep(0.2)


async def _tick(broker: Broker, number: int, leader: str = "one", held: tuple[str, ...] = ("default/orders",)) -> None:
    tick = Tick(leader=leader, number=number, held=held)
    await broker.store(BEATS, subjects.TICK, encode(tick), {})


async def test_without_streams_every_command_says_so(nats: EmbeddedBroker) -> None:
    adsum = Adsum(nats.url)
    for command in ("services", "instances", "log"):
        result = await adsum(command)
        assert result.code == 1
        assert "no adsumd has run on this broker yet" in result.err
        assert result.err.count("\n") == 1
    status = await adsum("status")
    assert status.code == 1
    assert "stream ADSUM_EVENTS is missing" in status.out


async def test_status_of_a_working_registry(served: Adsum) -> None:
    keeper = await served.start("register", "mail", "--host", "smtp.example.com", "--port", "25")
    await keeper.says("registered")
    report = (await served("status", "--json")).json
    assert report["working"] is True
    assert report["problems"] == []
    assert report["leader"]["leads"] is True
    assert (report["last_sequence"], report["lag"]) == (1, 0)
    assert [stream["name"] for stream in report["streams"]] == ["ADSUM_EVENTS", "ADSUM_BEATS", "ADSUM_TOPOLOGY"]
    assert report["namespaces"][0]["instances"] == 1
    text = await served("status")
    assert text.code == 0
    assert "nats-server 2." in text.out
