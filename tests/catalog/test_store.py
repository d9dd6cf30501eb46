"""Storing a batch: one transaction, fenced by the checkpoint."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest

from adsum.events.lifecycle import Event
from adsum.events.names import Key
from adsum.projector.catalog import Catalog, Checkpoint
from adsum.projector.databases import open_catalog
from adsum.projector.errors import CatalogRefused, CheckpointMoved

from .conftest import Database
from .story import EPOCH, Story, key

TABLES = ("instances", "history", "events", "rejected")


async def counts(database: Database) -> dict[str, object]:
    return {table: (await database.run(f"SELECT count(*) FROM {table}"))[0][0] for table in TABLES}


async def test_an_unused_catalog_is_bound_to_a_log_once(catalog: Catalog) -> None:
    assert await catalog.checkpoint() is None
    assert await catalog.begin(EPOCH) == Checkpoint(EPOCH, 0, "") == await catalog.checkpoint()
    assert await catalog.begin(EPOCH) == Checkpoint(EPOCH, 0, "")  # a retry, or another daemon that starts
    other = EPOCH.replace("1", "2")
    assert await catalog.begin(other) == await catalog.checkpoint()  # nothing was folded: not bound for good


async def test_a_catalog_that_folded_something_stays_with_its_log(catalog: Catalog) -> None:
    story = Story()
    stood = await story.tell(catalog, story.register(key()))
    with pytest.raises(CheckpointMoved):
        await catalog.begin(EPOCH)
    assert await catalog.checkpoint() == stood


async def test_what_is_stored_is_what_was_folded(catalog: Catalog) -> None:
    story = Story()
    first = await story.tell(catalog, *(story.register(key(number)) for number in range(5)))
    assert first.sequence == 5
    await story.tell(
        catalog,
        story.update(key(1), zone="b", weight=0.5),
        story.lapse(key(2)),
        story.leave(key(3)),
        story.lapse(key(4)),
    )
    await story.tell(catalog, story.resume(key(4)), story.health(key(1), "no disk"), story.expire(key(2)))
    assert await catalog.records() == sorted(story.records.values(), key=lambda record: record.key)
    assert {record.key for record in await catalog.records()} == {key(0), key(1), key(4)}


async def test_the_same_batch_twice_changes_nothing(catalog: Catalog, database: Database) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    batch = story.batch([story.register(key()), story.lapse(key())])
    stored = await catalog.store(expected, batch)
    before = await counts(database)
    with pytest.raises(CheckpointMoved):
        await catalog.store(expected, batch)
    assert await counts(database) == before == {"instances": 1, "history": 2, "events": 2, "rejected": 0}
    assert await catalog.checkpoint() == stored == Checkpoint(EPOCH, 2, batch.last_id, batch.head)


@pytest.mark.parametrize(
    "wrong",
    [
        Checkpoint("another", 1, "id"),
        Checkpoint(EPOCH, 0, ""),
        Checkpoint(EPOCH, 1, "another"),
        Checkpoint(EPOCH, 2, ""),
    ],
)
async def test_a_wrong_checkpoint_stores_nothing(catalog: Catalog, database: Database, wrong: Checkpoint) -> None:
    story = Story()
    stood = await story.tell(catalog, story.register(key(1)))
    with pytest.raises(CheckpointMoved):
        await catalog.store(wrong, story.batch([story.register(key(2))]))
    assert await catalog.checkpoint() == stood
    assert (await counts(database))["events"] == 1


async def test_nothing_can_be_stored_before_the_catalog_is_bound(catalog: Catalog) -> None:
    story = Story()
    with pytest.raises(CheckpointMoved):
        await catalog.store(Checkpoint(EPOCH, 0, ""), story.batch([story.register(key())]))
    assert await catalog.records() == []


async def test_a_refused_batch_leaves_nothing_and_its_halves_can_be_tried(catalog: Catalog, database: Database) -> None:
    story = Story()
    told = [story.register(key(1)), story.register(key(2))]
    refused = story.health(key(2), "no\0disk")  # the fold refuses such bytes; a batch that holds it all the same
    expected = await catalog.begin(EPOCH)
    good = story.batch(told)
    bad = good._replace(
        entries=(*good.entries, good.entries[0]._replace(message=refused)), links=defaultdict(bytes, good.links)
    )
    with pytest.raises(CatalogRefused):  # the event id is there twice
        await catalog.store(expected, bad)
    assert await catalog.checkpoint() == expected
    assert set((await counts(database)).values()) == {0}
    assert (await catalog.store(expected, good)).sequence == 2
    assert await catalog.records() == list(story.records.values())


@pytest.mark.parametrize("damage", ["nul", "surrogate", "time", "sequence", "id"])
async def test_a_value_that_no_database_can_hold(catalog: Catalog, database: Database, damage: str) -> None:
    story = Story()
    expected = await catalog.begin(EPOCH)
    good = story.batch([story.register(key())])
    entry = good.entries[0]
    broken = {
        "nul": lambda: entry._replace(event=_with(entry.event, term="a\0b")),
        "surrogate": lambda: entry._replace(event=_with(entry.event, term="a\ud800b")),
        "time": lambda: entry._replace(message=entry.message._replace(time=1e18)),
        "sequence": lambda: entry._replace(message=entry.message._replace(sequence=2**63)),
        "id": lambda: entry._replace(event=_with(entry.event, id="x" * 201)),
    }[damage]()
    with pytest.raises(CatalogRefused):
        await catalog.store(expected, good._replace(entries=(broken,), links=defaultdict(bytes, good.links)))
    assert set((await counts(database)).values()) == {0}
    await catalog.store(expected, good)


async def test_text_comes_back_as_it_was(catalog: Catalog) -> None:
    story = Story()
    odd = Key("default", "orders", "x" * 63)
    metadata = {"ü": "", "quote": "'\"\\;--", "emoji": "🦉", "long": "ö" * 1000, "line": "a\nb\tc\x01\u2028"}
    await story.tell(catalog, story.register(odd, metadata=metadata, version="", zone="Zürich ☂"))
    await story.tell(catalog, story.health(odd, "r" * 10_000 + "🦉'"))
    (record,) = await catalog.records()
    assert record == story.records[odd]
    assert record.description.metadata == metadata
    assert len(record.reason) == 10_002


async def test_times_come_back_to_the_microsecond(catalog: Catalog) -> None:
    story = Story()
    times = [0.0, 1.000001, 1_770_000_000.999999, 4_102_444_799.123457]
    messages = [story.register(key(number))._replace(time=time) for number, time in enumerate(times)]
    await story.tell(catalog, *messages)
    assert [record.registered_at for record in await catalog.records()] == times


async def test_payloads_and_what_is_set_aside_stay_byte_for_byte(catalog: Catalog, database: Database) -> None:
    story = Story()
    garbage = bytes(range(256))
    good = story.register(key(1))
    await story.tell(catalog, good, story.raw(key(2), garbage), story.raw(key(2), b""))
    assert [bytes(row[0]) for row in await database.run("SELECT payload FROM events")] == [good.data]
    rows = await database.run("SELECT sequence, subject, payload, reason FROM rejected ORDER BY sequence")
    assert [(row[0], bytes(row[2])) for row in rows] == [(2, garbage), (3, b"")]
    assert all(row[1] == good.subject.replace("0001", "0002") and row[3] for row in rows)


async def test_whatever_is_set_aside_can_be_stored(catalog: Catalog, database: Database) -> None:
    story = Story()
    batch = story.batch([story.raw(key(), b"\x00")])
    odd = batch.rejected[0]._replace(reason="because of \0 and \ud800")
    await catalog.store(await catalog.begin(EPOCH), batch._replace(rejected=(odd,)))
    assert (await database.run("SELECT reason FROM rejected"))[0][0] == "because of \ufffd and ?"


async def test_folded_tells_which_events_are_there(catalog: Catalog) -> None:
    story = Story()
    await story.tell(catalog, story.register(key(1)), story.register(key(2)))
    known = set(story.terms.values())
    assert await catalog.folded([*known, "another", "it's"]) == known
    assert await catalog.folded([]) == set()


async def test_records_come_in_the_order_of_their_keys(catalog: Catalog) -> None:
    story = Story()
    keys = [
        Key("b", "a", "a"),
        Key("a-b", "z", "1"),
        Key("a", "z", "1"),
        Key("a", "a0", "1"),
        Key("a", "a", "x-1"),
        Key("a", "a", "x0"),
        Key("a", "a", "x"),
    ]
    await story.tell(catalog, *(story.register(each) for each in keys))
    assert [record.key for record in await catalog.records()] == sorted(keys)


async def test_it_is_all_there_after_it_was_opened_again(catalog: Catalog, database: Database) -> None:
    story = Story()
    stood = await story.tell(catalog, story.register(key(1)), story.register(key(2)), story.leave(key(2)))
    await catalog.close()
    await catalog.close()
    again = open_catalog(database.dsn)
    await again.open()
    try:
        assert await again.checkpoint() == stood
        assert await again.records() == list(story.records.values())
        await story.tell(again, story.register(key(3)))
    finally:
        await again.close()


def _with(event: Event, **changes: str) -> Event:
    return msgspec.structs.replace(event, **changes)
