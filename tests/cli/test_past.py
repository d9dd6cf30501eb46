"""at, diff, why, uptime and the filters of log, of a real adsumd and of a log of which each time is known."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Deregistered, Event, HealthChanged, ModeChanged, Updated
from adsum.events.log import last_word, say
from adsum.events.names import Key
from adsum.events.reader import Message
from adsum.events.streams import EVENTS
from adsum.projector.fold import fold_batch
from tests.audit.logs import whole_log
from tests.daemons import Service
from tests.making import OWNER, description
from tests.waiting import until

from .programs import SCRIPTS, Adsum, types
from .terminal import Terminal

ANN = Author("operator", "ann@desk")
LONG = {"heartbeat": 60.0, "ttl": 1500.0}
"""Of instances that nobody beats for, and that stay all the same."""
STATE = ("service", "id", "term", "revision", "endpoints", "liveness", "health", "mode", "reason", "version")


@pytest.fixture
async def line(served: Adsum) -> AsyncIterator[Broker]:
    """A connection to the broker of `served`."""
    broker = Broker.open(BrokerSettings(url=served.url), "test")
    await broker.ready(10)
    yield broker
    await broker.close()


def instance(broker: Broker, id: str, service: str = "orders", **said: Any) -> Service:
    """A service by hand."""
    one = Service(broker, Key("default", service, id))
    one.said = description(**(LONG | said))
    return one


async def tell(one: Service, kind: type[Event], by: Author = OWNER, **said: Any) -> int:
    """An event about its life; the sequence."""
    word = await last_word(one.broker, one.key)
    assert word is not None
    return await say(one.broker, one.key, kind(id=new_id(), term=one.term, by=by, **said), word.sequence)


async def folded(adsum: Adsum, revision: int) -> None:
    """Wait until the daemon has folded so far, which it tells in its ticks."""

    async def reached() -> int:
        return (await adsum("status", "--json")).json["leader"]["revision"]

    await until(reached, lambda found: found >= revision, 20)


def spelled(time: float) -> str:
    """A time as it can be typed to the microsecond."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="microseconds")


def fields(instances: list[Mapping[str, Any]]) -> list[list[Any]]:
    return [[one[name] for name in STATE] for one in instances]


def folded_fields(messages: list[Message], revision: int) -> list[list[Any]]:
    """Those who are there at a revision, as the fold of the log says."""
    upto = [message for message in messages if message.sequence <= revision]
    found = []
    for key, record in sorted(fold_batch({}, upto).changed.items()):
        if record is not None:
            endpoints = list(msgspec.to_builtins(record.description.endpoints))
            state = [endpoints, record.liveness, record.health, record.mode, record.reason]
            found.append([key.service, key.id, record.term, record.revision, *state, record.description.version])
    return found


# ---- at


async def random_history(broker: Broker, dice: random.Random, count: int) -> None:
    """So many events about few instances of two services."""
    everyone = [instance(broker, f"i-{at}", dice.choice(["orders", "billing"])) for at in range(5)]
    for _ in range(count):
        one = dice.choice(everyone)
        if not one.term or dice.random() < 0.25:
            one.said = description(**LONG, version=str(dice.random()))
            await one.register()
            continue
        deed = dice.randrange(4)
        if deed == 0:
            await tell(one, Updated, instance=description(**LONG, version=str(dice.random())))
        elif deed == 1:
            await tell(one, HealthChanged, health=dice.choice(["passing", "warning", "critical"]), reason="so")
        elif deed == 2:
            await tell(one, ModeChanged, ANN, mode=dice.choice(["serving", "draining", "maintenance"]))
        else:
            await tell(one, Deregistered)


async def test_who_was_there_at_any_moment_is_what_the_log_says(served: Adsum, line: Broker) -> None:
    """By its revision and by the time that the broker gave it; and now is what everybody is told now."""
    dice = random.Random()
    await random_history(line, dice, 40)
    messages = await whole_log(line)
    await folded(served, 40)
    for message in [messages[0], messages[-1], *dice.sample(messages[1:-1], 3)]:
        wanted = folded_fields(messages, message.sequence)
        for moment in (f"@{message.sequence}", spelled(message.time)):
            result = await served("at", moment, "--json")
            assert result.code == 0, result.err
            assert result.json["revision"] == message.sequence
            assert fields(result.json["instances"]) == wanted
    now, there = await served("at", "now", "--json"), await served("instances", "--all", "--json")
    assert now.json["instances"] == there.json
    assert now.json["epoch"] == (await served("status", "--json")).json["epoch"]


async def test_at_is_shown_like_instances_under_the_moment_that_it_was(served: Adsum, line: Broker) -> None:
    one, other = instance(line, "a", version="1.4"), instance(line, "b", "billing")
    await one.register()
    await other.register()
    await tell(other, HealthChanged, health="critical")
    title, *lines = (await served("at", "@3")).out.splitlines()
    assert title.endswith(" (@3): 2 instances, 1 routable")
    assert lines == (await served("instances", "--all")).out.splitlines()
    assert (await served("at", "@3", "--routable")).out.splitlines()[2].split() == lines[2].split()
    assert [row.split()[1] for row in (await served("at", "@3", "billing")).out.splitlines()[2:]] == ["b"]
    nobody = await served("at", "@3", "billing", "--routable")
    assert (nobody.code, nobody.out) == (0, "")
    assert "nobody of billing in namespace default could be called at 20" in nobody.err
    assert nobody.err.endswith("; not routable: 1\n")
    typo = await served("at", "@3", "ordrs", "--json")
    assert (typo.code, typo.json["instances"]) == (0, [])
    assert typo.err.endswith("; did you mean orders?\n")
    for moment, told in (("@99", "revision 99 is in the future, or not folded yet"), ("-9h", "the log begins at")):
        refused = await served("at", moment)
        assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1)
        assert told in refused.err


async def test_what_is_printed_can_be_asked_for(served: Adsum, line: Broker) -> None:
    """Each time that log prints, in the zone of this machine, means the log up to that event, which counts."""
    for at in range(5):
        await instance(line, f"i-{at}").register()
        await asyncio.sleep(0.005)  # no two in one millisecond, which is what is printed
    env = {**served.env, "TZ": "Asia/Kolkata"}
    rows = [row.split() for row in (await served("log", env=env)).out.splitlines()[1:]]
    assert all(row[1].endswith("+05:30") for row in rows)
    for sequence, time, *_ in rows:
        for zone in ("Asia/Kolkata", "UTC"):
            told = (await served("at", time, env=env | {"TZ": zone})).out.splitlines()[0]
            assert f"(@{sequence}): {sequence} instance" in told
    exact = (await served("at", "@3", env=env)).out.splitlines()[0]
    assert exact.startswith(f"{rows[2][1]} (@3)")
    since = (await served("log", "--since", rows[2][1], "--until", rows[3][1], env=env)).out.splitlines()[1:]
    assert [row.split()[0] for row in since] == ["4"]


async def test_who_came_and_went_between_is_told_with_where_to_look(served: Adsum, line: Broker) -> None:
    await instance(line, "b", "billing").register()
    one = instance(line, "a")
    await one.register()
    await tell(one, Deregistered)
    nothing = await served("diff", "@1", "@3", "orders")
    assert (nothing.code, nothing.out) == (0, "")
    command = nothing.err.splitlines()[-1].partition("between: adsum ")[2].removesuffix(" tells of them")
    assert command == "log orders --since @1 --until @3"
    assert types(await served.events(*command.split()[1:])) == ["registered", "deregistered"]


# ---- diff, why, uptime


async def test_a_service_that_broke(served: Adsum, line: Broker) -> None:
    """One is drained and restarted, one removed, one falls silent: each command tells its part of it."""
    one, other = instance(line, "a", version="1"), instance(line, "b")
    silent = Service(line, Key("default", "orders", "c"))
    for each in (one, other, silent):
        await each.register()
    await tell(one, ModeChanged, ANN, mode="draining", reason="update")
    one.said = description(**LONG, version="2")
    await one.register()  # 5
    await tell(other, Deregistered, ANN, reason="wrong build")  # 6
    gone = await until(lambda: whole_log(line), lambda said: len(said) >= 8, 20)
    await folded(served, 8)

    text = await served("diff", "@3", "@8")
    assert text.code == 0, text.err
    title, names, *rows = text.out.splitlines()
    assert title.endswith("(@8): 2 left, 1 changed")
    assert names.split() == ["TIME", "CHANGE", "SERVICE", "ID", "REVISION", "DETAIL"]
    assert [row.split()[1:4] for row in rows] == [["changed", "orders", "a"], ["left", "orders", "b"],
                                                 ["left", "orders", "c"]]  # fmt: skip
    assert rows[0].endswith("a new life (the one before: superseded, its owner registered it anew); version 1 -> 2")
    assert rows[1].endswith("deregistered by an operator (ann@desk): wrong build")
    assert "expired by the reaper (" in rows[2]
    document = (await served("diff", spelled(gone[2].time), "now", "orders", "--json")).json
    assert (document["since"]["revision"], document["until"]["revision"]) == (3, 8)
    assert [(found["kind"], found["reason"], found["revision"]) for found in document["differences"]] == [
        ("changed", "superseded", 5), ("left", "deregistered", 6), ("left", "expired", 8)
    ]  # fmt: skip
    assert [(await served("diff", *bounds, "--exit-code")).code for bounds in (("@3", "@8"), ("@6", "@6"))] == [1, 0]
    same = await served("diff", "@6", "@6")
    assert (same.code, same.out) == (0, "")
    assert "nothing in namespace default differs" in same.err

    story = (await served("why", "orders", "c", "--json")).json
    assert types(story["story"]) == ["registered", "lapsed", "expired"]
    lapsed, expired = story["story"][1:]
    assert (lapsed["evidence"]["counter"], lapsed["evidence"]["ttl"]) == (1, 1.5)
    assert lapsed["evidence"]["silent"] >= 1.5
    assert expired["evidence"]["silent"] >= 3.0
    assert (story["lives"], story["now"]["state"], story["now"]["present"]) == (1, "gone", False)
    told = (await served("why", "orders", "a", env=served.env | {"TZ": "Europe/Berlin"})).out.splitlines()
    assert told[0] == "default/orders/a: 2 lives, told up to @8"
    assert [row.split()[1] for row in told[2:]] == ["@1", "@4", "@5", "@8"]
    assert all("+01:00" in row or "+02:00" in row for row in told[2:])
    assert "An operator (ann@desk) set its mode to draining (update); it was serving." in told[3]
    assert f"Life 2 (term {one.term}) began and superseded life 1" in told[4]
    assert "It is up and can be called, at 127.0.0.1:8080" in told[5]

    times = [message.time for message in gone]
    [service] = (await served("uptime", "--json", "--until", "@8")).json["services"]
    a, b, c = service["instances"]
    whole = times[7] - times[0]
    assert (a["counted"], a["present"]) == (pytest.approx(whole), pytest.approx(whole))
    assert a["routable"] == pytest.approx(whole - (times[4] - times[3]))
    assert (a["left"], a["longest_gap"], a["between"]) == (0, pytest.approx(times[4] - times[3]), None)
    assert b["share_routable"] == pytest.approx((times[5] - times[1]) / (times[7] - times[1]))
    assert (c["left"], c["routable"]) == (1, pytest.approx(times[6] - times[2]))
    assert (service["share_present"], service["left"]) == (pytest.approx(1.0), 0)
    later = (await served("uptime", "orders", "--since", "@6", "--json")).json
    assert [one["id"] for one in later["services"][0]["instances"]] == ["a", "c"]
    text = await served("uptime", "orders", "--since", "@6")
    assert [row.split()[1] for row in text.out.splitlines()[2:]] == ["(any)", "a", "c"]
    assert "1 more had left before; --all shows also these" in text.err
    everyone = await served("uptime", "orders", "--since", "@6", "--all")
    assert [row.split()[1:4] for row in everyone.out.splitlines()[2:]][2] == ["b", "0.00%", "0.00%"]


async def test_who_is_not_known_is_told_with_who_was_perhaps_meant(served: Adsum, line: Broker) -> None:
    id = new_id()
    await instance(line, id).register()
    await instance(line, "web-1").register()
    for names, told in (
        (("ordrs", "a"), "there never was a service ordrs in namespace default; did you mean orders?"),
        (("orders", "web1"), "orders never had an instance web1 in namespace default; did you mean web-1?"),
        (("orders", id[:8]), f"did you mean {id}?"),
        (("orders", f"{id[:6]}…{id[-6:]}"), f"did you mean {id}?"),
        (("orders", "web-1", "--namespace", "staging"), "there never was a service orders in namespace staging"),
    ):
        result = await served("why", *names)
        assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
        assert told in result.err
    empty = await served("uptime", "ordrs")
    assert (empty.code, empty.out) == (0, "")
    assert "nobody of ordrs was there in namespace default from the beginning of the log to " in empty.err
    assert empty.err.endswith("; did you mean orders?\n")


async def test_a_reader_that_had_enough_is_no_error(served: Adsum, line: Broker) -> None:
    for at in range(30):
        await instance(line, f"i-{at}").register()
    one = instance(line, "i-0")
    await one.register()
    for at in range(100):
        await tell(one, HealthChanged, health="warning", reason=f"{at} " * 20)
    for command in ("why orders i-0", "at now", "diff @0 now", "uptime", "why orders i-0 --json"):
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", f"set -o pipefail; {SCRIPTS}/adsum {command} | head -1; echo ${{PIPESTATUS[0]}}",
            env=served.env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await shell.communicate()
        assert err == b"", command
        assert out.splitlines()[-1] in (b"0", b"141")  # 0 if the pipe took it all


async def test_an_export_whose_reader_had_enough_is_no_error(adsum: Adsum, broker: Broker) -> None:
    await instance(broker, "a").register()
    reads, writes = os.pipe()
    os.close(reads)
    shell = await asyncio.create_subprocess_exec(
        SCRIPTS / "adsum", "export", "-", env=adsum.env, stdout=writes, stderr=asyncio.subprocess.PIPE
    )
    os.close(writes)
    assert (await shell.communicate())[1] == b""
    assert shell.returncode in (0, 141)


def plain(shown: Terminal) -> str:
    """What was printed, without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.screen)


@pytest.mark.parametrize("columns", [80, 120])
async def test_everything_fits_into_a_terminal(served: Adsum, line: Broker, columns: int) -> None:
    one = instance(line, new_id(), version="1", metadata={"team": "payments and refunds"})
    await one.register()
    await tell(one, HealthChanged, health="critical", reason="the disk is full")
    await one.register()
    await tell(one, Deregistered, ANN, reason="wrong build")
    await instance(line, "b").register()
    env = {**served.env, "TZ": "Europe/Berlin"}
    for command, ends in (
        (["at", "@3"], "team=payments" if columns > 80 else "1 instance, 1 routable"),
        (["diff", "@1", "@5"], "joined"),
        (["why", "orders", one.key.id], "It is gone: life 2 was deregistered"),
        (["uptime"], "BETWEEN  COUNTED"),
    ):
        shown = await Terminal.start([str(SCRIPTS / "adsum"), *command], env, columns)
        try:
            assert await shown.code() == 0, shown.screen
            screen = await until(partial(plain, shown), partial(re.search, re.escape(ends)))
            answer = [row for row in screen.splitlines() if not row.startswith(("adsum: ", "from "))]
            assert max(map(len, answer)) <= columns, shown.screen
            assert all(answer), shown.screen  # no row is empty
        finally:
            await shown.close()


@pytest.mark.parametrize(
    "command", [["at", "now"], ["diff", "-1h", "now"], ["why", "orders", "a"], ["uptime"]], ids=lambda words: words[0]
)
async def test_where_no_adsumd_answers_one_line_says_what_to_look_at(adsum: Adsum, command: list[str]) -> None:
    result = await adsum(*command)
    assert (result.code, result.out, result.err.count("\n")) == (3, "", 1)
    assert "no adsumd answers questions about the past" in result.err
    assert "adsum status" in result.err


# ---- log, without any adsumd


async def test_the_log_is_filtered_also_while_no_adsumd_runs(adsum: Adsum, broker: Broker) -> None:
    one, other = instance(broker, "a"), instance(broker, "b", "billing")
    await one.register()
    await other.register()
    await tell(one, HealthChanged, health="critical")
    await broker.store(EVENTS, "adsum.v1.default.event.orders.a", b"junk", {})
    await tell(other, Deregistered)
    messages = await whole_log(broker)

    async def shown(*options: str) -> list[int]:
        return [event["sequence"] for event in await adsum.events(*options)]

    assert await shown("--instance", "a") == [1, 3, 4]
    assert await shown("orders", "--instance", "b") == []
    assert await shown("--type", "registered", "--type", "deregistered") == [1, 2, 5]
    assert await shown("--type", "unreadable") == [4]
    assert await shown("--since", "@2", "--until", "@4") == [3, 4]
    assert await shown("--since", spelled(messages[1].time), "--until", spelled(messages[3].time)) == [3, 4]
    assert await shown("--until", "now", "billing") == [2, 5]
    nothing = await adsum("log", "orders", "--type", "expired")
    assert (nothing.code, nothing.out) == (0, "")
    assert "the log says nothing of orders in namespace default that fits the other options" in nothing.err
    near = await adsum("log", "orders", "--since", "@6")
    assert (near.code, near.err) == (1, "adsum: revision 6 is in the future: the log ends at revision 5\n")


async def test_following_from_now_on_shows_only_what_comes(adsum: Adsum, broker: Broker) -> None:
    one = instance(broker, "a")
    await one.register()
    follower = await adsum.start("log", "--follow", "--since", "now", "--type", "health-changed", "--json")
    await follower.says("yet; what it will say is shown here")
    await instance(broker, "b").register()
    await tell(one, HealthChanged, health="critical")
    await until(lambda: len(follower.out), lambda seen: seen == 1)
    assert [(event["type"], event["sequence"]) for event in follower.events] == [("health-changed", 3)]
