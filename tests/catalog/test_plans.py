"""Plans: with many rows, what is looked up by a key or a revision is never found by reading a whole table."""

from __future__ import annotations

import json
import re

import asyncpg
import pytest

from adsum.projector.catalog import Catalog, Heard, Observations
from adsum.projector.postgres import _BEGIN
from adsum.projector.queries import load_queries

from .conftest import Database, PostgresDatabase
from .story import Story, key

NAMED = {
    "folded": (["a", "b"],),
    "departures": (["default"] * 2, ["orders"] * 2, ["i-0001", "i-0002"]),
    "end_versions": ([1], [9_999], [None], ["expired"]),
    "delete_instances": (["default"], ["orders"], ["i-0001"]),
    "delete_heard": (["a"],),
    "next_began": (17,),
    "versions_at": (3_900, 3_990, 4_500, "", "", "", 500),
    "versions_between": (0, 4_990, 0, "default", "svc-7", "", 500),
    "versions_of_instance": (0, 4_990, 0, "default", "orders", "i-0001", 500),
    "next_logged": (17,),
    "logged": (0, 4_990, ",registered,", "default", "svc-7", "", 500),
    "logged_of_instance": (0, 4_990, "", "default", "orders", "i-0001", 500),
}
ASKED = {
    "one instance's life": "SELECT * FROM history WHERE namespace = 'default' AND service = 'orders'"
    " AND instance = 'i-0001' ORDER BY began_revision",
    "its events": "SELECT * FROM events WHERE namespace = 'default' AND service = 'orders'"
    " AND instance = 'i-0001' ORDER BY sequence",
    "began between two revisions": "SELECT * FROM history WHERE began_revision BETWEEN 100 AND 120",
    "ended between two revisions": "SELECT * FROM history WHERE ended_revision BETWEEN 4100 AND 4120",
    "ended between two times": "SELECT * FROM history"
    " WHERE ended_at BETWEEN '2026-02-02T02:40:04.200000Z' AND '2026-02-02T02:40:04.210000Z'",
    "events between two times": "SELECT * FROM events"
    " WHERE time BETWEEN '2026-02-02T02:40:01.200000Z' AND '2026-02-02T02:40:01.210000Z'",
    "the revision of a time": "SELECT sequence FROM events WHERE time <= '2026-02-02T02:40:01.200000Z'"
    " ORDER BY time DESC LIMIT 1",
    "those of a service": "SELECT * FROM instances WHERE namespace = 'default' AND service = 'svc-7'",
    # Whatever holds at a time began before it and either ended after it or is open: two ranges of one index, of which
    # the first is short for a recent time. Most of an early time's answer is the table itself.
    "everything at a recent revision": "SELECT * FROM history WHERE began_revision <= 4990 AND ended_revision > 4990",
    "everything at a recent time": "SELECT * FROM history WHERE began_at <= '2026-02-02T02:40:05.110000Z'"
    " AND ended_at > '2026-02-02T02:40:05.110000Z'",
}


@pytest.fixture
async def full(catalog: Catalog, database: Database) -> Database:
    """A catalog with 4,000 lives of which 1,000 ended."""
    story = Story()
    keys = [key(number, f"svc-{number % 40}") for number in range(4_000)]
    await story.tell(catalog, *(story.register(each) for each in keys))
    await story.tell(catalog, *(story.leave(each) for each in keys[:1_000]))
    lives = [Heard(f"term-{number}", 1, 1.0) for number in range(4_000)]
    await catalog.observe(await catalog.take(), Observations(1.0, lives, (), (), 1))
    return database


@pytest.mark.parametrize("analysed", [False, True])
async def test_no_lookup_reads_a_whole_table(full: Database, analysed: bool) -> None:
    if analysed:
        await full.run("ANALYZE")
    scans = {asked: await scanned(full, sql) for asked, sql in ASKED.items()}
    if isinstance(full, PostgresDatabase):
        for name, values in NAMED.items():
            scans[name] = await postgres_scans(full.dsn, getattr(load_queries("postgres"), name), values)
    else:
        for name in (*NAMED, "upsert_heard"):
            scans[name] = await scanned(full, getattr(load_queries("sqlite"), name))
    assert {asked: tables for asked, tables in scans.items() if tables} == {}


async def test_what_held_at_a_moment_is_told_by_an_index_alone(full: Database) -> None:
    """A row is read only of what held, however much of it there is that did not."""
    await full.run("VACUUM ANALYZE" if isinstance(full, PostgresDatabase) else "ANALYZE")
    moment = NAMED["versions_at"]
    if isinstance(full, PostgresDatabase):
        plan = await postgres_plan(full.dsn, load_queries("postgres").versions_at, moment)
        assert '"Index Only Scan"' in plan
        assert '"history_by_span"' in plan
    else:
        told = await full.run("EXPLAIN QUERY PLAN " + re.sub(r"\?\d+", "''", load_queries("sqlite").versions_at))
        assert any("USING INDEX history_by_span" in str(row[3]) for row in told)
        told = await full.run("EXPLAIN QUERY PLAN " + re.sub(r"\?\d+", "''", load_queries("sqlite").revision_at))
        assert any("USING COVERING INDEX events_by_time" in str(row[3]) for row in told)


async def scanned(database: Database, sql: str) -> set[str]:
    """The tables that a statement reads whole."""
    if isinstance(database, PostgresDatabase):
        return await postgres_scans(database.dsn, sql, ())
    told = [str(row[3]) for row in await database.run("EXPLAIN QUERY PLAN " + re.sub(r"\?\d+", "'[]'", sql))]
    return {line for line in told if re.match(r"SCAN (?!wanted|json_each|CONSTANT)", line)}


async def postgres_scans(dsn: str, sql: str, values: tuple[object, ...]) -> set[str]:
    return set(_whole(json.loads(await postgres_plan(dsn, sql, values))[0]["Plan"]))


async def postgres_plan(dsn: str, sql: str, values: tuple[object, ...]) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(_BEGIN)
        return str(await connection.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *values))
    finally:
        await connection.close()


def _whole(plan: dict[str, object]) -> list[str]:
    inner = plan.get("Plans", [])
    assert isinstance(inner, list)
    found = [str(plan["Relation Name"])] if plan["Node Type"] == "Seq Scan" else []
    return found + [name for child in inner for name in _whole(child)]
