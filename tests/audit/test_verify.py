"""`adsum verify`: whatever was edited in a catalog is found and named, and nothing is found where nothing is wrong."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adsum.events.broker import Broker
from adsum.events.chain import GENESIS, link
from adsum.events.reader import Message
from adsum.events.tools import Difference
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.errors import Refusal
from adsum.projector.rebuild import rebuild
from adsum.projector.sqlite import SQLiteCatalog
from adsum.projector.verify import verify_alone
from tests.audit.eventful import say_all
from tests.audit.logs import head_of, whole_log
from tests.audit.verifying import told, unheard, verified
from tests.cli.programs import Adsum
from tests.daemons import Service, topology
from tests.databases import Database, NewDatabase, PostgresDatabase, PostgresServer, SQLiteDatabase
from tests.making import key
from tests.waiting import until

# ---- catalogs that were edited


class Edit:
    """What somebody does to a catalog in SQL, and what is to be named first."""

    def __init__(self, sql: str, table: str, field: str, place: str = "") -> None:
        self.sql, self.table, self.field, self.place = sql, table, field, place


def times(dialect: str, column: str) -> str:
    """A microsecond later."""
    if dialect == "postgres":
        return f"{column} + interval '1 microsecond'"
    return f"substr({column}, 1, 20) || printf('%06d', (substr({column}, 21, 6) + 1) % 1000000) || 'Z'"


def edits(dialect: str) -> list[Edit]:
    """One of each kind."""
    sequence = "(SELECT min(sequence) FROM events WHERE sequence > 20)"
    payload = {
        "sqlite": "cast(replace(cast(payload AS text), 'registered', 'registereD') AS blob)",
        "postgres": "set_byte(payload, 9, get_byte(payload, 9) + 1)",
    }[dialect]
    spoiled = {"sqlite": "zeroblob(32)", "postgres": "decode(repeat('00', 32), 'hex')"}[dialect]
    weight = {
        "sqlite": "replace(description, '127.0.0.1', '127.0.0.2')",
        "postgres": "jsonb_set(description, '{weight}', '77')",
    }[dialect]
    if dialect == "sqlite":
        weight = "json_set(description, '$.weight', 77)"
    ended = "(SELECT min(began_revision) FROM history WHERE ended_revision IS NOT NULL AND began_revision > 30)"
    somebody = "service = (SELECT min(service) FROM instances) AND namespace = 'default'"
    event = f"UPDATE events SET %s WHERE sequence = {sequence}"
    version = f"UPDATE history SET %s WHERE began_revision = {ended}"
    copied = "event_id || 'x', time, namespace, service, instance, term, type, author_kind, author_name, payload, hash"
    of_any_type = [
        Edit("UPDATE events SET payload = -1 WHERE sequence = 1", "events", "payload", "1"),
        Edit("UPDATE rejected SET payload = -1", "rejected", "payload"),
    ]
    return [
        *(of_any_type if dialect == "sqlite" else ()),
        Edit(f"UPDATE events SET payload = {payload} WHERE sequence = 1", "events", "payload", "1"),
        Edit(event % f"time = {times(dialect, 'time')}", "events", "time"),
        Edit(event % f"hash = {spoiled}", "events", "hash"),
        Edit(event % "service = 'others'", "events", "service"),
        Edit(event % "author_name = 'nobody'", "events", "author_name"),
        Edit(event % "type = 'resumed-'", "events", "type"),
        Edit(f"DELETE FROM events WHERE sequence = {sequence}", "events", ""),
        Edit(f"INSERT INTO events SELECT 100000, {copied} FROM events WHERE sequence = 1", "events", "", "100000"),
        Edit("UPDATE rejected SET payload = hash", "rejected", "payload"),
        Edit("UPDATE rejected SET reason = 'none' WHERE reason NOT LIKE 'the%'", "rejected", "reason"),
        Edit("UPDATE rejected SET reason = 'none' WHERE reason LIKE 'the catalog%'", "rejected", "reason"),
        Edit("DELETE FROM rejected", "rejected", ""),
        Edit(version % "health = 'warning'", "history", "health"),
        Edit(version % f"began_at = {times(dialect, 'began_at')}", "history", "began_at"),
        Edit(version % f"ended_at = {times(dialect, 'ended_at')}", "history", "ended_at"),
        Edit(version % "ended_by = 'expired-'", "history", "ended_by"),
        Edit(version % "ended_revision = ended_revision + 1", "history", "ended_revision"),
        Edit(version % f"description = {weight}", "history", "description"),
        Edit(f"DELETE FROM history WHERE began_revision = {ended}", "history", ""),
        Edit("DELETE FROM history WHERE ended_revision IS NULL", "history", ""),
        Edit(
            "UPDATE history SET ended_revision = 9, ended_by = 'x', ended_at = began_at WHERE ended_revision IS NULL",
            "history",
            "ended_revision",
        ),
        Edit(f"UPDATE instances SET health = 'warning' WHERE {somebody}", "instances", "health"),
        Edit(f"UPDATE instances SET ttl = ttl + 1 WHERE {somebody}", "instances", "ttl"),
        Edit(f"UPDATE instances SET changed_at = {times(dialect, 'changed_at')}", "instances", "changed_at"),
        Edit(f"UPDATE instances SET description = {weight} WHERE {somebody}", "instances", "description"),
        Edit("UPDATE instances SET instance = 'i-0000a' WHERE instance = 'i-0099'", "instances", ""),
        Edit("DELETE FROM instances WHERE instance = 'i-0099'", "instances", "", "default/orders/i-0099"),
        Edit("UPDATE checkpoint SET event_id = 'another'", "checkpoint", "event_id"),
        Edit(f"UPDATE checkpoint SET head = {spoiled}", "checkpoint", "head"),
        Edit("UPDATE checkpoint SET epoch = 'another'", "checkpoint", "epoch"),
    ]


ALONE = {"checkpoint epoch"}
"""What a catalog alone cannot know of itself."""


@pytest.fixture
async def copies(
    request: pytest.FixtureRequest, new_database: NewDatabase, tmp_path: Path
) -> Callable[[Database], Any]:
    """Gives a copy of a database."""
    count = iter(range(1000))

    async def copy(database: Database) -> Database:
        if isinstance(database, SQLiteDatabase):
            file = tmp_path / f"copy-{next(count)}.db"
            await database.run(f"VACUUM INTO '{file}'")
            return SQLiteDatabase(file)
        server: PostgresServer = request.getfixturevalue("postgres_server")
        [(name,)] = await database.run("SELECT current_database()")
        return PostgresDatabase(server.dsn(await server.create(name)))

    return copy


async def test_every_edit_of_a_catalog_is_found_and_named(
    nats: EmbeddedBroker, broker: Broker, new_database: NewDatabase, copies: Callable[[Database], Any], tmp_path: Path
) -> None:
    """With the log, and by the catalog alone: the table, the place, the column, and what either says."""
    await say_all(broker)
    good = await new_database(tmp_path)
    async with told(nats, tmp_path):
        await rebuild(broker, good.dsn, until=None, base=(), progress=unheard)
        found = await verified(broker, good.dsn)
        assert found.differences == ()
        assert found.compared[0].what.startswith("catalog ")
        assert (await verify_alone(good.dsn, head=None, progress=unheard)).differences == ()
        for edit in edits(good.dialect):
            edited = await copies(good)
            await edited.run(edit.sql)
            by_log = (await verified(broker, edited.dsn)).differences
            alone = (await verify_alone(edited.dsn, head=None, progress=unheard)).differences
            assert is_named(by_log, edit), (edit.sql, by_log)
            if f"{edit.table} {edit.field}" not in ALONE:
                assert alone, edit.sql
            assert all(one.part == "catalog" for one in (*by_log, *alone))


def is_named(found: tuple[Difference, ...], edit: Edit) -> bool:
    """Whether the edit is what differs first."""
    first = found[0] if found else None
    return (
        first is not None
        and (first.table, first.field) == (edit.table, edit.field)
        and edit.place in ("", first.place)
        and first.expected != first.found
    )


# ---- what the running hash proves


async def forge(database: Database, log: list[Message]) -> None:
    """Edit authors, and all hashes after them and the checkpoint's along, as somebody would who knows how."""
    forged = [one._replace(data=one.data.replace(b"orders-7f", b"orders-8f")) for one in log]
    assert forged != log
    blob, head = "x'{}'" if database.dialect == "sqlite" else "decode('{}', 'hex')", GENESIS
    for one in forged:
        head = link(head, one)
        hashed, where = f"hash = {blob.format(head.hex())}", f"WHERE sequence = {one.sequence}"
        await database.run(f"UPDATE events SET payload = {blob.format(one.data.hex())}, {hashed} {where}")
        await database.run(f"UPDATE rejected SET payload = {blob.format(one.data.hex())}, {hashed} {where}")
    await database.run("UPDATE events SET author_name = 'orders-8f' WHERE author_name = 'orders-7f'")
    await database.run(f"UPDATE checkpoint SET head = {blob.format(head.hex())}")


async def test_a_catalog_forged_as_a_whole_is_found_by_the_log_and_by_a_hash_that_was_kept(
    nats: EmbeddedBroker, broker: Broker, new_database: NewDatabase, tmp_path: Path
) -> None:
    """It agrees with itself: that is what the running hash alone does not prove."""
    await say_all(broker, 60)
    log, forged = await whole_log(broker), await new_database(tmp_path)
    await rebuild(broker, forged.dsn, until=None, base=(), progress=unheard)
    kept = head_of(log[:40])
    async with told(nats, tmp_path):
        assert (await verify_alone(forged.dsn, head=(kept, 40), progress=unheard)).differences == ()
        await forge(forged, log)
        assert (await verify_alone(forged.dsn, head=None, progress=unheard)).differences == ()
        for head in ((kept, 40), (kept, None)):
            [found] = (await verify_alone(forged.dsn, head=head, progress=unheard)).differences
            assert (found.part, found.field, found.found) == ("log", "head", kept)
        found = (await verified(broker, forged.dsn)).differences[0]
        assert (found.table, found.field, found.place) == ("events", "author_name", str(log[0].sequence))
        assert (found.expected, found.found) == ("orders-7f", "orders-8f")


async def test_a_hash_that_was_kept(nats: EmbeddedBroker, broker: Broker, tmp_path: Path) -> None:
    """The one printed now is right for ever; a wrong one, or one of another revision, is named."""
    await say_all(broker, 60)
    log = await whole_log(broker)
    async with told(nats, tmp_path):
        now = await verified(broker)
        assert (now.revision, now.head) == (log[-1].sequence + 1, head_of(await whole_log(broker)))
        assert now.not_compared == ("a catalog: --catalog DSN names one",)
        await Service(broker, key("later"), heartbeat=100, ttl=300).register()
        good = [(now.head, now.revision), (now.head, None), (head_of(log[:7]), 7), (head_of(log[:7]), None)]
        for head in good:
            found = await verified(broker, head=head)
            assert found.differences == (), head
            assert (
                found.compared[0].what
                == f"the running hash that was kept, of revision {head[1] or found_at(head, good)}"
            )
        for head in ((now.head, 7), ("ab" * 32, 7), ("ab" * 32, None), (now.head, now.revision + 9)):
            [wrong] = (await verified(broker, head=head)).differences
            assert (wrong.part, wrong.field, wrong.found) == ("log", "head", head[0])
            assert str(head[1] or "up to") in wrong.place


def found_at(head: tuple[str, int | None], good: list[tuple[str, int | None]]) -> int | None:
    """The revision that the same hash has in another pair."""
    return next(revision for hash, revision in good if hash == head[0] and revision)


# ---- nothing is wrong


async def churn(broker: Broker, number: int) -> None:
    """An instance that comes, changes and goes, for ever."""
    service = Service(broker, key(f"c{number}"), heartbeat=100, ttl=300)
    while True:
        await service.register()
        await asyncio.sleep(0.01 * number)
        await service.deregister()


async def test_no_false_alarm_while_services_come_and_go(
    nats: EmbeddedBroker, broker: Broker, new_database: NewDatabase, tmp_path: Path
) -> None:
    """Again and again, on the catalog that an adsumd is writing: it is not held up, and nothing differs."""
    database = await new_database(tmp_path)
    async with told(nats, tmp_path, "--catalog", database.dsn):
        going = [asyncio.create_task(churn(broker, number)) for number in range(8)]
        try:
            adsum, revisions = Adsum(nats.url), list[int]()
            for _ in range(4):
                found = await verified(broker, database.dsn)
                assert found.differences == ()
                revisions.append(found.revision)
            result = await adsum("verify", "--catalog", database.dsn, "--json")
            assert (result.code, result.err) == (0, "")
            assert result.json["differences"] == []
            assert result.json["not_compared"] == []
            assert [one["part"] for one in result.json["compared"]] == ["catalog", "topology", "cache"]
            assert revisions == sorted(set(revisions))
            await adsum.stop()
        finally:
            for task in going:
                task.cancel()
            await asyncio.gather(*going, return_exceptions=True)
        marker = key("marker-2")
        await Service(broker, marker, heartbeat=100, ttl=300).register()
        await until(lambda: topology(broker, marker), seconds=30)
    assert (await verify_alone(database.dsn, head=None, progress=unheard)).differences == ()


@pytest.mark.parametrize("edit", ["sequence = 'zz'", "complete_from = 1.5", "head = 'none'"])
async def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path, edit: str) -> None:
    """SQLite takes any value in any column."""
    catalog = SQLiteCatalog(tmp_path / "catalog.db")
    await catalog.open()
    await catalog.begin("epoch")
    await catalog.close()
    await SQLiteDatabase(tmp_path / "catalog.db").run(f"UPDATE checkpoint SET {edit}")
    with pytest.raises(Refusal, match=rf"was edited: its {edit.split()[0]} is"):
        await verify_alone(catalog.name, head=None, progress=unheard)


# ---- the command


async def test_the_command_tells_what_agrees_and_what_differs(
    nats: EmbeddedBroker, broker: Broker, tmp_path: Path
) -> None:
    """In words, in JSON and by its exit code, on the catalog of an adsumd that runs."""
    await say_all(broker, 60)
    adsum, dsn = Adsum(nats.url), f"sqlite:///{tmp_path / 'data' / 'catalog.db'}"
    async with told(nats, tmp_path):
        good = await adsum("verify", "--catalog", dsn)
        assert (good.code, good.err) == (0, "")
        revision = int(re.findall(r"^revision +(\d+)$", good.out, re.MULTILINE)[0])  # some may lapse meanwhile
        head = head_of([message for message in await whole_log(broker) if message.sequence <= revision])
        for told_so in (
            head,
            f"agrees        catalog {dsn} up to revision ",
            "agrees        the topology",
            "of namespace",
        ):
            assert told_so in good.out
        bad = await adsum("verify", "--head", f"{head}@5")
        assert (bad.code, bad.err) == (1, "")
        assert "DIFFERS       log revision 5 head: " in bad.out
        assert "agrees        the topology" in bad.out
        assert (await adsum("verify", "--head", head)).code == 0
    database = SQLiteDatabase(tmp_path / "data" / "catalog.db")
    await database.run("UPDATE history SET reason = 'edited' WHERE began_revision = 3")
    alone = await adsum("verify", "--offline", "--catalog", dsn, "--nats", "nats://127.0.0.1:1")
    assert alone.code == 1
    assert "DIFFERS       catalog history 3 reason: the log says" in alone.out
    assert "found edited" in alone.out
    told_json = (await adsum("verify", "--offline", "--catalog", dsn, "--json")).json
    assert told_json["differences"][0]["place"] == "3"
    assert json.dumps(told_json)
    await adsum.stop()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--head", "abc"), 2, "head 'abc': must be 64 hex digits"),
        (("--head", "ab" * 32 + "@0"), 2, "must be 64 hex digits, and @REVISION"),
        (("--offline",), 2, "name it with --catalog"),
        (("--catalog", "catalog.db"), 2, "dsn 'catalog.db'"),
        (("--catalog", "sqlite:///missing.db"), 1, "there is no file missing.db"),
        (("--offline", "--catalog", "sqlite:///foreign.db"), 1, "holds no catalog"),
        (("--offline", "--catalog", "sqlite:///junk.db"), 1, "file is not a database"),
        (("--base", "missing.jsonl"), 1, "missing.jsonl"),
    ],
)
async def test_what_cannot_be_verified_is_one_line(
    nats: EmbeddedBroker, broker: Broker, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """And nothing is made in the folder."""
    (tmp_path / "junk.db").write_bytes(b"junk" * 1000)
    await SQLiteDatabase(tmp_path / "foreign.db").run("CREATE TABLE other (x)")
    before = names(tmp_path)
    adsum = Adsum(nats.url)
    running = await adsum.start("verify", *arguments, cwd=tmp_path)
    assert (await running.code(), len(running.err)) == (code, 1), running.err
    assert said in running.err[0]
    assert names(tmp_path) == before
    await adsum.stop()


def names(folder: Path) -> list[str]:
    """What is in it."""
    return sorted(path.name for path in folder.iterdir())
