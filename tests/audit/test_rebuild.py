"""`adsum rebuild`: a catalog out of the log that is the one adsumd makes, and that writes over nobody's."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from adsum.events.broker import Broker
from adsum.events.errors import AdsumError, InvalidValue
from adsum.events.streams import read_epoch, renew_epoch
from adsum.projector import source
from adsum.projector.catalog import Checkpoint
from adsum.projector.databases import open_catalog
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.errors import CatalogInUse, Refusal
from adsum.projector.failpoints import Point
from adsum.projector.migrations import load_indexes
from adsum.projector.rebuild import rebuild
from adsum.projector.sqlite import SQLiteCatalog
from tests.audit.eventful import say, say_all, something
from tests.audit.logs import head_of, whole_log
from tests.catalog.story import Story
from tests.cli.programs import Adsum, environment, start
from tests.daemons import Service, adsumd
from tests.databases import Database, NewDatabase, PostgresDatabase, SQLiteDatabase
from tests.faults.content import Tables, refold, tables
from tests.faults.failing import give
from tests.making import key
from tests.servers import Server
from tests.waiting import until

REPOSITORY = Path(__file__).parents[2]
DYING = """
import sys
from pathlib import Path
from adsum.clients.cli import main
from adsum.projector import failpoints, source
from tests.faults.failing import Order
source.BATCH = 500
failpoints.listen(Order(Path(sys.argv.pop(1))))
main()
"""
"""The command `adsum`, which kills itself where an order says so: the file that its first argument names."""
DEATHS: list[tuple[Point, int]] = [("before commit", 1), ("after commit", 1), ("after fold", 3), ("after commit", 2)]


async def rebuilt(broker: Broker, dsn: str, upto: int | None = None, base: tuple[str, ...] = ()) -> int:
    """Rebuild; the revision that the catalog then stands at."""
    done = await rebuild(broker, dsn, until=upto, base=base, progress=lambda done, total: None)
    return done.revision


async def held(database: Database) -> Tables:
    """What a catalog holds; how a database words its refusal is its own matter."""
    return without_wording(await tables(database))


async def at_once(broker: Broker, folder: Path) -> Tables:
    """What a rebuild makes of the whole log that nothing interrupts, which is what adsumd makes of it."""
    database = SQLiteDatabase(folder / "at-once.db")
    await rebuilt(broker, database.dsn)
    return await held(database)


def without_wording(content: Tables) -> Tables:
    """See `held`."""
    for row in content["rejected"]:
        row[4] = str(row[4]).partition("the catalog refuses it: ")[0] or "refused"
    return content


async def test_it_is_the_catalog_that_adsumd_makes(
    nats: EmbeddedBroker, broker: Broker, new_database: NewDatabase, tmp_path: Path
) -> None:
    """Every row of every table, also of what was set aside; and what the command prints is what the catalog says."""
    await say_all(broker)
    async with adsumd(tmp_path / "data", "--nats", nats.url) as daemon:
        await until(lambda: "leading from" in daemon.stderr, seconds=20)
    made = await held(SQLiteDatabase(tmp_path / "data" / "catalog.db"))
    fresh = await new_database(tmp_path)
    adsum = Adsum(nats.url)
    result = await adsum("rebuild", "--into", fresh.dsn, "--json")
    assert result.code == 0, result.err
    found = await held(fresh)
    assert found == made
    assert {name for name, rows in found.items() if not rows} == set()
    log = await whole_log(broker)
    told = result.json
    assert (told["events"], told["revision"], told["since"]) == (len(log), log[-1].sequence, 0)
    assert (told["head"], told["rejected"]) == (head_of(log), len(found["rejected"]))
    assert any("refused" in row for row in found["rejected"])
    assert any("was folded before" in str(row) for row in found["rejected"])
    assert "***" in told["catalog"] or fresh.dialect == "sqlite"
    await adsum.stop()


async def test_it_goes_on_where_it_was_interrupted(
    broker: Broker, new_database: NewDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled in the middle, again and again: nothing is folded twice, nothing is left out."""
    monkeypatch.setattr(source, "BATCH", 20)
    await say_all(broker)
    fresh, done = await new_database(tmp_path), 0
    for _ in range(4):
        reached = asyncio.Event()

        def hear(done: int, total: int, reached: asyncio.Event = reached) -> None:
            if done >= 60:
                reached.set()

        working = asyncio.create_task(rebuild(broker, fresh.dsn, until=None, base=(), progress=hear))
        await asyncio.wait_for(reached.wait(), 20)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        [(stands,)] = await fresh.run("SELECT sequence FROM checkpoint")
        assert stands >= done + 60
        done = stands
    last = await rebuild(broker, fresh.dsn, until=None, base=(), progress=lambda done, total: None)
    assert (last.since, last.events) == (done, last.revision - done)
    assert await held(fresh) == await at_once(broker, tmp_path)


async def test_the_command_killed_at_any_moment_goes_on(nats: EmbeddedBroker, broker: Broker, tmp_path: Path) -> None:
    await say(broker, something(Story(), random.Random(2), 4000))
    fresh, adsum, order = SQLiteDatabase(tmp_path / "fresh.db"), Adsum(nats.url), tmp_path / "order"
    for point, times in DEATHS:
        give(order, point, times)
        command = (sys.executable, "-c", DYING, str(order), "rebuild", "--into", fresh.dsn)
        running = await start(command, environment(nats.url), cwd=REPOSITORY)
        assert await running.code() == -signal.SIGKILL, running.err
    assert (await adsum("rebuild", "--into", fresh.dsn)).code == 0
    assert await held(fresh) == await at_once(broker, tmp_path)
    assert await indexes(fresh) == set(load_indexes("sqlite"))
    await adsum.stop()


async def test_indexes_are_there_at_the_end_and_whatever_cut_it_off(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild of much does without them until the end; one that adds little to a catalog leaves them where they are.

    Where it was cut off they are missing, and whoever opens the catalog next makes them.
    """
    monkeypatch.setattr(source, "BATCH", 20)
    await say_all(broker, 200)
    fresh, reached = SQLiteDatabase(tmp_path / "fresh.db"), asyncio.Event()
    working = asyncio.create_task(
        rebuild(broker, fresh.dsn, until=None, base=(), progress=lambda done, total: reached.set())
    )
    await asyncio.wait_for(reached.wait(), 20)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    assert await indexes(fresh) == set()
    catalog = open_catalog(fresh.dsn)
    await catalog.open()
    assert await indexes(fresh) == set(load_indexes("sqlite"))
    await catalog.close()
    await rebuilt(broker, fresh.dsn)
    assert await indexes(fresh) == set(load_indexes("sqlite"))
    await say(broker, something(Story(), random.Random(3), 30))
    seen: list[set[str]] = []
    seeing = SQLiteCatalog.store

    async def store(self: SQLiteCatalog, *arguments: Any) -> Checkpoint:
        seen.append(await indexes(fresh))
        return await seeing(self, *arguments)

    monkeypatch.setattr(SQLiteCatalog, "store", store)
    await rebuilt(broker, fresh.dsn)
    assert seen
    assert all(one == set(load_indexes("sqlite")) for one in seen)


async def indexes(database: SQLiteDatabase) -> set[str]:
    """The indexes that are there, without those of a table's own keys."""
    rows = await database.run("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    return {name for (name,) in rows}


async def test_up_to_a_revision(broker: Broker, new_database: NewDatabase, tmp_path: Path) -> None:
    """The catalog as it was then; later it goes on from there, and never back."""
    await say_all(broker, 200)
    fresh, log, epoch = await new_database(tmp_path), await whole_log(broker), await read_epoch(broker)
    assert await rebuilt(broker, fresh.dsn, 77) == 77
    assert await held(fresh) == await refold(log[:77], epoch)
    assert await rebuilt(broker, fresh.dsn) == log[-1].sequence
    assert await held(fresh) == await at_once(broker, tmp_path)
    with pytest.raises(Refusal, match=r"stands at revision \d+ already\. Name an empty database"):
        await rebuilt(broker, fresh.dsn, 77)
    for beyond in (0, log[-1].sequence + 1):
        with pytest.raises(InvalidValue, match=f"which ends at {log[-1].sequence}"):
            await rebuilt(broker, fresh.dsn, beyond)


async def test_a_log_that_was_trimmed_wants_the_export_of_what_it_lacks(
    broker: Broker, new_database: NewDatabase, tmp_path: Path, nats: EmbeddedBroker
) -> None:
    """With it the catalog is the same but for the epoch; without it, or with another one, nothing is made."""
    await say_all(broker, 200)
    adsum = Adsum(nats.url)
    whole, rest = str(tmp_path / "whole.jsonl.gz"), str(tmp_path / "rest.jsonl")
    for arguments in ((whole,), (rest, "--since", "@120")):
        assert (await adsum("export", *arguments)).code == 0
    second = await Server(tmp_path / "second").start()
    try:
        there, bus = Adsum(second.url), Broker.open(broker.settings.__class__(url=second.url), "test")
        await bus.ready(10)
        assert (await there("import", rest)).code == 0
        fresh = await new_database(tmp_path)
        result = await there("rebuild", "--into", fresh.dsn)
        assert (result.code, "the log begins after revision 120" in result.err) == (1, True)
        assert "--base FILE" in result.err
        for wrong in (rest, str(tmp_path / "missing.jsonl")):
            result = await there("rebuild", "--into", fresh.dsn, "--base", wrong)
            assert result.code == 1, result.err
            assert ("running hashes differ" in result.err) or "missing.jsonl" in result.err
        assert await rebuilt(bus, fresh.dsn, 60, (whole,)) == 60
        result = await there("rebuild", "--into", fresh.dsn, "--base", whole)
        assert result.code == 0, result.err
        found = await held(fresh)
        whole_one = await at_once(broker, tmp_path)
        for content in (found, whole_one):
            content["checkpoint"][0][0] = "any epoch"
        assert found == whole_one
        await bus.close()
    finally:
        await second.stop()


async def test_a_catalog_of_another_log_is_left_alone(
    broker: Broker, new_database: NewDatabase, tmp_path: Path
) -> None:
    """Another event at its checkpoint, another epoch: refused, with the remedy, and as it was."""
    await say_all(broker, 100)
    foreign, story = await new_database(tmp_path), Story()
    catalog = open_catalog(foreign.dsn)
    await catalog.open()
    stands = await catalog.begin(await read_epoch(broker))
    await catalog.store(stands, story.batch(something(story, random.Random(3), 50)))
    await catalog.close()
    before = await held(foreign)
    with pytest.raises(Refusal, match=r"not a part of this log: the log holds another event .*Name an empty database"):
        await rebuilt(broker, foreign.dsn)
    await renew_epoch(broker)
    with pytest.raises(Refusal, match=r"not a part of this log: the log is of epoch"):
        await rebuilt(broker, foreign.dsn)
    assert await held(foreign) == before


async def test_a_file_that_an_adsumd_has_is_left_alone(nats: EmbeddedBroker, broker: Broker, tmp_path: Path) -> None:
    async with adsumd(tmp_path / "data", "--nats", nats.url):
        await Service(broker, key("a"), heartbeat=100, ttl=300).register()
        with pytest.raises(CatalogInUse, match=r"in use by process \d+\. Stop that daemon"):
            await rebuilt(broker, f"sqlite:///{tmp_path / 'data' / 'catalog.db'}")


async def test_a_database_that_an_adsumd_leads_on_is_left_alone(
    nats: EmbeddedBroker, broker: Broker, empty_postgres: str, tmp_path: Path
) -> None:
    """Also once that adsumd has ended: it may come back any time."""
    await say_all(broker, 100)
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", empty_postgres) as daemon:
        await until(lambda: "leading from" in daemon.stderr, seconds=20)
        with pytest.raises(CatalogInUse, match=r"that of an adsumd, .*Name an empty database"):
            await rebuilt(broker, empty_postgres)
        await Service(broker, key("later"), heartbeat=100, ttl=300).register()
    with pytest.raises(CatalogInUse):
        await rebuilt(broker, empty_postgres)


async def test_an_adsumd_that_takes_the_database_meanwhile_ends_the_rebuild(
    nats: EmbeddedBroker, broker: Broker, empty_postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adsumd goes on from where the rebuild was, and what is there is the fold of the log."""
    monkeypatch.setattr(source, "BATCH", 5)
    await say_all(broker)
    begun, taken = asyncio.Event(), asyncio.Event()
    fold = source.read_log

    async def slowly(*arguments: object) -> source.Source:
        async for messages in fold(*arguments):  # type: ignore[arg-type]  # as they come
            yield messages
            begun.set()
            if messages[-1].sequence > 100:
                await taken.wait()

    monkeypatch.setattr(source, "read_log", slowly)
    working = asyncio.create_task(rebuilt(broker, empty_postgres))
    await asyncio.wait_for(begun.wait(), 20)
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", empty_postgres) as daemon:
        await until(lambda: "leading from" in daemon.stderr, seconds=30)
        taken.set()
        with pytest.raises(CatalogInUse):
            await working
        end = (await whole_log(broker))[-1].sequence
        database = PostgresDatabase(empty_postgres)
        await until(lambda: database.run("SELECT sequence FROM checkpoint"), [(end,)].__eq__, seconds=30)
    found = await held(PostgresDatabase(empty_postgres))
    assert found == await at_once(broker, tmp_path)


async def test_two_at_once_into_one_database(broker: Broker, empty_postgres: str, tmp_path: Path) -> None:
    """One of them wins, or they end one after the other; the catalog is the fold either way."""
    await say_all(broker)
    ended = await asyncio.gather(*(rebuilt(broker, empty_postgres) for _ in range(2)), return_exceptions=True)
    assert any(isinstance(one, int) for one in ended), ended
    assert all(isinstance(one, int | AdsumError) for one in ended), ended
    found = await held(PostgresDatabase(empty_postgres))
    assert found == await at_once(broker, tmp_path)


async def test_without_the_projector_it_says_what_to_install(nats: EmbeddedBroker, broker: Broker) -> None:
    """What the extra brings is not there: one line, and 2."""
    without = "import sys; sys.modules['aiosqlite'] = None; from adsum.clients.cli import main; main()"
    for command in (["rebuild", "--into", "sqlite:///a.db"], ["verify"]):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", without, *command, env={**os.environ, "ADSUM_NATS": nats.url}, stderr=-1, stdout=-1
        )
        out, err = await process.communicate()
        assert (process.returncode, out) == (2, b"")
        assert err.decode() == "adsum: needs adsum[projector]: pip install 'adsum[projector]'\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--into", "fresh.db"), "dsn 'fresh.db'"),
        (("--into", "sqlite:///fresh.db", "--until", "soonish"), "soonish"),
        (("--into", "sqlite:///fresh.db", "--until", "2020-01-01"), "must be a revision"),
        (("--into", "sqlite:///fresh.db", "--until", "@0"), "must be a revision"),
        ((), "--into"),
    ],
)
async def test_wrong_usage_is_one_line_and_makes_no_file(
    nats: EmbeddedBroker, broker: Broker, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    adsum = Adsum(nats.url)
    running = await adsum.start("rebuild", *arguments, cwd=tmp_path)
    assert await running.code() == 2, running.err
    assert len(running.err) == 1
    assert told in running.err[0]
    assert not (tmp_path / "fresh.db").exists()
    await adsum.stop()
