"""Questions about the past: the same answers from both databases, bounded, and refused where they cannot be known."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from adsum.events.errors import BeforeLog, InvalidValue, NoLongerKept, NotYet, QuestionRefused
from adsum.events.names import Key
from adsum.events.questions import (
    EVENT_TYPES,
    EventsAsked,
    Logged,
    Moment,
    Page,
    Version,
    VersionsAsked,
    WorldAsked,
)
from adsum.events.reader import Message
from adsum.projector.catalog import Catalog
from adsum.projector.errors import CatalogUnavailable
from adsum.projector.fold import fold_batch
from adsum.projector.history import History
from adsum.projector.record import Record

from .conftest import Database
from .story import BEGAN, EPOCH, Story, key

NOW = BEGAN + 1000.0


def at(revision: int) -> Moment:
    return Moment(revision=revision)


def when(sequence: float) -> Moment:
    """The time that the story gives to a message."""
    return Moment(time=BEGAN + sequence / 1000)


def history(catalog: Catalog, **settings: object) -> History:
    return History(catalog, clock=lambda: NOW, **{"patience": 0.0, **settings})  # type: ignore[arg-type]


async def pages(asking: History, asked: VersionsAsked | EventsAsked, room: int = 900_000) -> AsyncIterator[Page]:
    """All pages, asked for as the client does."""
    while True:
        page = await (asking.events if isinstance(asked, EventsAsked) else asking.versions)(asked, room)
        yield page
        if page.next == 0:
            return
        assert page.next > asked.after
        pinned = {"since": at(page.since), "until": at(page.until), "after": page.next}
        asked = msgspec.structs.replace(asked, **pinned)


async def every(asking: History, asked: VersionsAsked | EventsAsked, room: int = 900_000) -> list:
    return [item async for page in pages(asking, asked, room) for item in page.items]


def something(dice: random.Random, story: Story) -> Message:
    """Any next message, of few instances in two namespaces; now and then one that nobody can read."""
    who = key(dice.randrange(6), dice.choice(["orders", "billing"]), dice.choice(["default", "staging"]))
    if who not in story.terms or dice.random() < 0.2:
        return story.register(who, version=str(dice.random()))
    if dice.random() < 0.05:
        return story.raw(who, b"junk")
    return dice.choice([story.update, story.health, story.lapse, story.resume, story.expire, story.leave])(who)


def records_at(told: list[Message], revision: int) -> dict[Key, Record]:
    """Those who are there at a revision, as the fold says."""
    messages = [message for message in told if message.sequence <= revision]
    changed = fold_batch({}, messages).changed if messages else {}
    return {who: record for who, record in changed.items() if record is not None}


# ---- what is answered


@pytest.mark.parametrize("seed", range(3))
async def test_the_world_at_any_revision_is_what_the_fold_says(catalog: Catalog, seed: int) -> None:
    """Whatever the pages: by rows, by bytes, by how far each looks."""
    dice, story = random.Random(seed), Story()
    told = [something(dice, story) for _ in range(150)]
    await story.tell(catalog, *told[:70])
    await story.tell(catalog, *told[70:])
    asking = history(catalog, span=dice.choice([7, 40, 100_000]))
    for revision in (1, 2, 37, 70, 71, 119, 150):
        asked = VersionsAsked(since=at(revision), until=at(revision), limit=dice.choice([1, 3, 500]))
        found: list[Version] = await every(asking, asked, dice.choice([1, 2_000, 900_000]))
        assert [version.began_revision for version in found] == sorted(version.began_revision for version in found)
        records = records_at(told, revision)
        assert {version.key: version.began_revision for version in found} == {
            who: record.revision for who, record in records.items()
        }
        for version in found:
            record = records[version.key]
            assert (version.term, version.description) == (record.term, record.description)
            assert (version.liveness, version.health, version.mode) == (record.liveness, record.health, record.mode)
            assert (version.registered_at, version.began_at) == pytest.approx((record.registered_at, record.changed_at))
            assert (version.ended_revision, version.ended_at, version.ended_by) == (None, None, None)


async def test_an_answer_at_a_revision_never_changes(catalog: Catalog) -> None:
    """Not by what is logged later: it is a function of the log up to there."""
    story, who = Story(), key()
    await story.tell(catalog, story.register(who), story.health(who))
    asking = history(catalog)
    world, life = VersionsAsked(since=at(2), until=at(2)), VersionsAsked(until=at(2))
    before = [(await asking.versions(asked)).items for asked in (world, life)]
    await story.tell(catalog, story.leave(who), story.register(who))
    assert [(await asking.versions(asked)).items for asked in (world, life)] == before
    assert [(one.began_revision, one.ended_revision) for one in before[1]] == [(1, 2), (2, None)]


async def test_one_life_is_told_from_its_beginning_to_its_end(catalog: Catalog) -> None:
    story, who, other = Story(), key(1), key(2)
    await story.tell(
        catalog,
        *(story.register(who), story.register(other), story.lapse(who), story.resume(who), story.expire(who)),
        story.register(who),
    )
    asking = history(catalog)
    asked = VersionsAsked(namespace="default", service="orders", id=who.id)
    page = await asking.versions(asked)
    assert [(one.began_revision, one.began_by, one.ended_revision, one.ended_by) for one in page.items] == [
        (1, "registered", 3, "lapsed"),
        (3, "lapsed", 4, "resumed"),
        (4, "resumed", 5, "expired"),
        (6, "registered", None, None),
    ]
    assert [one.routable for one in page.items] == [True, False, True, True]
    assert (page.epoch, page.revision, page.complete_from, page.since, page.until, page.next) == (EPOCH, 6, 1, 0, 6, 0)
    held = await asking.versions(msgspec.structs.replace(asked, since=at(3), until=at(5)))
    assert [one.began_revision for one in held.items] == [3, 4]  # the first had ended at 3, the last began after 5
    assert await asking.versions(WorldAsked(id=who.id, service="orders", at=at(5))) == msgspec.structs.replace(
        page, items=(), since=5, until=5
    )


async def test_events_are_what_was_logged(catalog: Catalog) -> None:
    story, who, other = Story(), key(1), key(2, "billing", "staging")
    told = [story.register(who), story.register(other), story.raw(who, b"junk"), story.lapse(who), story.leave(other)]
    await story.tell(catalog, *told)
    asking = history(catalog)

    async def found(**asked: object) -> list[int]:
        return [one.revision for one in await every(asking, EventsAsked(**asked))]  # type: ignore[arg-type]

    logged: list[Logged] = await every(asking, EventsAsked())
    assert [(one.revision, one.key, bytes(one.event)) for one in logged] == [
        (1, who, told[0].data),
        (2, other, told[1].data),
        (4, who, told[3].data),  # what nobody could read is in `rejected`
        (5, other, told[4].data),
    ]
    assert [one.time for one in logged] == pytest.approx([BEGAN + n / 1000 for n in (1, 2, 4, 5)], abs=1e-6)
    assert await found(since=at(2)) == [4, 5]
    assert await found(until=at(4)) == [1, 2, 4]
    assert await found(since=at(2), until=at(2)) == []
    assert await found(namespace="staging") == await found(service="billing") == await found(id=other.id) == [2, 5]
    assert await found(namespace="default", service="orders", id=who.id) == [1, 4]
    assert await found(types=("registered", "lapsed")) == [1, 2, 4]
    assert await found(types=("registered",), namespace="default", service="orders", id=who.id) == [1]
    assert await found(service="nobody") == []


# ---- pages


@pytest.mark.parametrize("span", [3, 100_000])
async def test_a_page_is_bounded_in_rows_in_bytes_and_in_what_is_read_for_it(catalog: Catalog, span: int) -> None:
    story = Story()
    await story.tell(catalog, *(story.register(key(number)) for number in range(10)))
    asking = history(catalog, span=span)
    sizes: dict[str, list[int]] = {}
    for name, asked, room in (
        ("rows", VersionsAsked(limit=4), 900_000),
        ("bytes", VersionsAsked(), 1_500),
        ("one at least", EventsAsked(limit=7), 1),
        ("nothing is found", EventsAsked(types=("expired",)), 900_000),
    ):
        found = [page async for page in pages(asking, asked, room)]
        sizes[name] = [len(page.items) for page in found]
        assert (
            all(sum(len(msgspec.json.encode(item)) + 1 for item in page.items) <= room for page in found) or room == 1
        )
        revisions = [getattr(item, "began_revision", 0) or item.revision for page in found for item in page.items]
        assert revisions == ([] if "expired" in str(asked) else list(range(1, 11)))
    assert sizes["one at least"] == [1] * 10
    assert sizes["rows"] == ([4, 4, 2] if span > 3 else [3, 3, 3, 1])
    assert sizes["nothing is found"] == ([0] if span > 3 else [0, 0, 0, 0])


async def test_where_nothing_is_kept_nothing_is_looked_through(catalog: Catalog, database: Database) -> None:
    """Revisions have gaps, a wide one where a log was brought from elsewhere."""
    story = Story()
    story.sequence = 10_000_000
    await story.tell(catalog, story.register(key()))
    found = [page async for page in pages(history(catalog, span=10), EventsAsked())]
    assert [len(page.items) for page in found] == [1]
    assert len([page async for page in pages(history(catalog, span=10), VersionsAsked())]) == 1


# ---- moments


@pytest.mark.parametrize("recent", [2, 10_000])
async def test_a_time_is_the_last_revision_at_or_before_it(catalog: Catalog, recent: int) -> None:
    story = Story()
    await story.tell(catalog, *(story.register(key(number)) for number in range(5)))
    asking = history(catalog, recent=recent)
    for time, revision in ((1, 1), (2.5, 2), (5, 5), (5.5, 5), (900_000, 5)):
        page = await asking.versions(WorldAsked(at=when(time)))
        assert (page.since, page.until, len(page.items)) == (revision, revision, revision)
    between = await asking.events(EventsAsked(since=when(2), until=when(4.9)))
    assert [one.revision for one in between.items] == [3, 4]


@pytest.mark.parametrize("recent", [1, 2, 10_000])
async def test_a_clock_that_was_put_back_makes_no_moment_earlier_than_one_before(catalog: Catalog, recent: int) -> None:
    """The leader of the log changed after 3, and the clock of the new one was behind."""
    story = Story()
    times = (10.0, 20.0, 30.0, 15.0, 25.0, 35.0)
    told = [story.register(key(number))._replace(time=BEGAN + time) for number, time in enumerate(times)]
    await story.tell(catalog, *told)
    asking = history(catalog, recent=recent)
    found = [(await asking.versions(WorldAsked(at=Moment(time=BEGAN + time)))).until for time in range(10, 40)]
    assert found == [1] * 5 + [4] * 10 + [5] * 10 + [6] * 5
    assert found == sorted(found)


async def test_what_cannot_be_known_is_refused(catalog: Catalog) -> None:
    story = Story()
    asking = history(catalog)
    with pytest.raises(CatalogUnavailable, match="not folded any log yet"):
        await asking.versions(VersionsAsked())
    await catalog.begin(EPOCH)
    assert (await asking.versions(VersionsAsked())).items == ()
    assert (await asking.versions(WorldAsked())).items == ()
    with pytest.raises(BeforeLog, match="the log is empty"):
        await asking.versions(WorldAsked(at=when(1)))
    await story.tell(catalog, story.register(key()), story.leave(key()))
    for asked in (WorldAsked(at=at(3)), VersionsAsked(until=at(3)), VersionsAsked(since=at(3))):
        with pytest.raises(NotYet, match=r"revision 3 is in the future, or not folded yet: .* stands at revision 2"):
            await asking.versions(asked)
    with pytest.raises(NotYet, match=r"2026-02-02T03:00:00.123Z is in the future: it is 2026-02-02T02:56:40.123Z"):
        await asking.versions(WorldAsked(at=Moment(time=NOW + 200)))
    with pytest.raises(NotYet):
        await asking.events(EventsAsked(since=Moment(time=1e30)))
    assert (await asking.versions(WorldAsked(at=Moment(time=NOW + 1)))).until == 2  # clocks differ a little
    begins = r"the log begins at revision 1, 2026-02-02T02:40:00.124Z"
    for moment in (when(0.5), Moment(time=0.0), Moment(time=-1e30), at(0)):
        with pytest.raises(BeforeLog, match=begins):
            await asking.versions(WorldAsked(at=moment))
        with pytest.raises(BeforeLog, match=begins):
            await asking.events(EventsAsked(until=moment))
        assert len((await asking.events(EventsAsked(since=moment))).items) == 2  # there was nothing before
        assert len((await asking.versions(VersionsAsked(since=moment))).items) == 1
    with pytest.raises(QuestionRefused, match=r"since \(revision 2\) must not be after until \(revision 1\)"):
        await asking.versions(VersionsAsked(since=at(2), until=at(1)))


async def test_what_was_removed_is_refused(catalog: Catalog, database: Database) -> None:
    story = Story()
    await story.tell(catalog, *(story.register(key(number)) for number in range(6)), story.leave(key(0)))
    await database.run("DELETE FROM events WHERE sequence < 4")
    await database.run("UPDATE checkpoint SET complete_from = 4")
    asking = history(catalog)
    told = r"{}: the catalog is complete from revision 4 on, what was before was removed"
    for moment, shown in (
        (at(3), "revision 3"),
        (when(3), "2026-02-02T02:40:00.126Z"),
        (Moment(time=1.0), "1970-01-01"),
    ):
        with pytest.raises(NoLongerKept, match=told.format(shown + ".*")):
            await asking.versions(WorldAsked(at=moment))
        with pytest.raises(NoLongerKept):
            await asking.versions(VersionsAsked(since=moment))
    for moment in (at(2), when(2), Moment(time=1.0)):
        with pytest.raises(NoLongerKept):
            await asking.events(EventsAsked(since=moment))
    with pytest.raises(NoLongerKept):
        await asking.versions(VersionsAsked(until=at(2)))
    page = await asking.events(EventsAsked())
    assert (page.complete_from, page.since, [one.revision for one in page.items]) == (4, 3, [4, 5, 6, 7])
    assert await asking.events(EventsAsked(since=at(page.since), until=at(page.until))) == page
    whole = await asking.versions(VersionsAsked())
    assert (whole.since, len(whole.items)) == (4, 6)
    assert len((await asking.versions(WorldAsked(at=at(4)))).items) == 4


async def test_what_is_removed_while_it_is_read_is_refused_and_not_missed(
    catalog: Catalog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    await story.tell(catalog, *(story.register(key(number)) for number in range(6)))
    asking = history(catalog)
    rows = catalog.rows

    async def removed_meanwhile(query, *values):  # stands for `rows`
        if query == "logged":
            await database.run("DELETE FROM events WHERE sequence < 4")
            await database.run("UPDATE checkpoint SET complete_from = 4")
        return await rows(query, *values)

    monkeypatch.setattr(catalog, "rows", removed_meanwhile)
    with pytest.raises(NoLongerKept):
        await asking.events(EventsAsked(since=at(1)))


async def test_a_revision_that_is_not_folded_yet_is_waited_for(catalog: Catalog) -> None:
    story = Story()
    await story.tell(catalog, story.register(key(1)))
    asking = history(catalog, patience=20.0)
    waiting = asyncio.create_task(asking.versions(WorldAsked(at=at(2))))
    assert (await asking.versions(WorldAsked())).until == 1
    assert not waiting.done()
    await story.tell(catalog, story.register(key(2)))
    assert len((await waiting).items) == 2


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (VersionsAsked(namespace="No Name"), "namespace 'No Name': must be 1 to 63"),
        (EventsAsked(types=("expire",)), "type 'expire': is none of .*; 'expired' would do"),
        (VersionsAsked(limit=0), "limit 0: must be a whole number from 1 on"),
        (EventsAsked(after=-1), "after -1"),
        (EventsAsked(after=1 << 70), "after 1180591620717411303424"),
        (WorldAsked(at=Moment(revision=1, time=1.0)), "at .*: must be a revision or a time, not both"),
        (WorldAsked(at=Moment(revision=-1)), "at -1: a revision is a whole number from 0 on"),
        (EventsAsked(until=Moment(time=float("nan"))), "until nan: must be a number of seconds since 1970"),
    ],
)
async def test_a_question_that_nobody_could_answer(catalog: Catalog, asked: object, told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        await (history(catalog).events if isinstance(asked, EventsAsked) else history(catalog).versions)(asked)  # type: ignore[arg-type]


def test_every_type_of_event_may_be_asked_for() -> None:
    assert EVENT_TYPES == (
        "registered", "updated", "health-changed", "mode-changed", "lapsed", "resumed", "expired", "deregistered"
    )  # fmt: skip
