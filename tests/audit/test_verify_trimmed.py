"""Verifying what was trimmed: the log with the exports of what it lacks, the catalog from where it is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from adsum.events.broker import Broker
from adsum.events.exporting import Span, export
from adsum.events.notes import Notes
from adsum.events.streams import note, read_epoch
from adsum.projector.databases import open_catalog
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.errors import Refusal
from adsum.projector.rebuild import rebuild
from adsum.projector.verify import verify, verify_alone
from tests.audit.eventful import say_all
from tests.audit.logs import head_of, whole_log
from tests.audit.verifying import told, unheard
from tests.cli.programs import Adsum
from tests.databases import NewDatabase
from tests.servers import Server

THROUGH = 120


async def test_a_catalog_that_forgot_is_compared_from_where_it_is_complete(
    nats: EmbeddedBroker, broker: Broker, new_database: NewDatabase, tmp_path: Path
) -> None:
    """Forgotten whole or in part; what it kept of that time is compared, and an edit of it is found."""
    await say_all(broker, 200)
    database, log, base = await new_database(tmp_path), await whole_log(broker), [str(tmp_path / "whole.jsonl")]
    async with told(nats, tmp_path):
        await rebuild(broker, database.dsn, until=None, base=(), progress=unheard)
        await export(broker, base[0], Span(), lambda _: None)
        notes = Notes(epoch=await read_epoch(broker), trimmed=THROUGH)
        await note(broker, notes._replace(trimmed_head=bytes.fromhex(head_of(log[:THROUGH]))))
        await database.run(f"UPDATE checkpoint SET complete_from = {THROUGH + 1}")  # and nothing is removed yet
        found = await verify(broker, catalog=database.dsn, head=None, cache=None, base=base, progress=unheard)
        assert found.differences == ()
        await database.run("UPDATE checkpoint SET complete_from = 1")
        catalog = open_catalog(database.dsn)
        await catalog.open()
        await catalog.forget(THROUGH)
        await catalog.close()
        found = await verify(broker, catalog=database.dsn, head=None, cache=None, base=base, progress=unheard)
        assert found.differences == ()
        assert f"from revision {THROUGH + 1} up to" in found.compared[0].what
        with pytest.raises(Refusal, match=f"before revision {THROUGH + 1} was removed"):
            await verify_alone(database.dsn, head=None, progress=unheard)
        [(kept,)] = await database.run(f"SELECT max(began_revision) FROM history WHERE began_revision <= {THROUGH}")
        for sql, table, place in (
            (f"UPDATE events SET author_name = 'x' WHERE sequence = {THROUGH + 1}", "events", THROUGH + 1),
            (f"UPDATE history SET reason = 'edited' WHERE began_revision = {kept}", "history", kept),
        ):
            await database.run(sql)
            edited = await verify(broker, catalog=database.dsn, head=None, cache=None, base=base, progress=unheard)
            assert (table, str(place)) in [(one.table, one.place) for one in edited.differences]


async def test_a_catalog_that_claims_to_have_forgotten_more_is_found(
    nats: EmbeddedBroker, broker: Broker, new_database: NewDatabase, tmp_path: Path
) -> None:
    """The log was not trimmed: what the catalog lacks was taken away, whatever its checkpoint says."""
    await say_all(broker, 200)
    database = await new_database(tmp_path)
    async with told(nats, tmp_path):
        await rebuild(broker, database.dsn, until=None, base=(), progress=unheard)
        for sql, tables in (
            ("UPDATE checkpoint SET complete_from = 30", ["checkpoint"]),
            ("UPDATE events SET author_name = 'nobody' WHERE sequence = 20", ["events", "checkpoint"]),
            ("DELETE FROM history WHERE ended_revision < 30", ["events", "history", "checkpoint"]),
        ):
            await database.run(sql)
            found = await verify(broker, catalog=database.dsn, head=None, cache=None, base=(), progress=unheard)
            assert sorted(one.table for one in found.differences) == sorted(tables)
        assert [one.field for one in found.differences if one.table == "checkpoint"] == ["complete_from"]


async def test_a_log_that_begins_later_is_verified_with_its_base(
    nats: EmbeddedBroker, broker: Broker, tmp_path: Path
) -> None:
    """The running hash is that of the whole log; without the exports there is no beginning to fold from."""
    await say_all(broker, 200)
    log, adsum = await whole_log(broker), Adsum(nats.url)
    whole, rest = str(tmp_path / "whole.jsonl.gz"), str(tmp_path / "rest.jsonl")
    for arguments in ((whole,), (rest, "--since", f"@{THROUGH}")):
        assert (await adsum("export", *arguments)).code == 0
    second = await Server(tmp_path / "second").start()
    try:
        there, dsn = Adsum(second.url), f"sqlite:///{tmp_path / 'fresh.db'}"
        assert (await there("import", rest)).code == 0
        assert (await there("rebuild", "--into", dsn, "--base", whole)).code == 0
        refused = await there("verify", "--catalog", dsn)
        assert (refused.code, f"begins after revision {THROUGH}" in refused.err) == (1, True)
        async with told(second, tmp_path, "--catalog", dsn):
            at = f"{head_of(log)}@{log[-1].sequence}"
            result = await there("verify", "--catalog", dsn, "--base", whole, "--head", at, "--json")
            assert (result.code, result.json["differences"]) == (0, [])
            assert [one["part"] for one in result.json["compared"]] == ["catalog", "log", "topology", "cache"]
    finally:
        await second.stop()
