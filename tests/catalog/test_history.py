"""History: every version, from the event that began it to the event that ended it; and who left."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from adsum.events.names import Key
from adsum.events.reader import Message
from adsum.projector.catalog import Catalog

from .conftest import Database
from .story import EPOCH, Story, key

VERSIONS = """
    SELECT instance, term, began_revision, began_by, ended_revision, ended_by, liveness, health
    FROM history ORDER BY began_revision
"""


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "batches of one"])
async def test_versions_of_a_life_chain(catalog: Catalog, database: Database, together: bool) -> None:
    story, who = Story(), key()
    told = [story.register(who), story.lapse(who), story.lapse(who), story.resume(who), story.health(who, "no disk")]
    told.append(story.expire(who))
    await tell(story, catalog, told, together)
    term = story.terms[who]
    assert await database.run(VERSIONS) == [
        (who.id, term, 1, "registered", 2, "lapsed", "up", "passing"),
        (who.id, term, 2, "lapsed", 4, "resumed", "stale", "passing"),  # the second lapse changed nothing
        (who.id, term, 4, "resumed", 5, "health-changed", "up", "passing"),
        (who.id, term, 5, "health-changed", 6, "expired", "up", "critical"),
    ]
    assert await catalog.departures([who, key(2)]) == {who: (term, 6, "expired")}


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "batches of one"])
async def test_a_successor_ends_the_life_before_it(catalog: Catalog, database: Database, together: bool) -> None:
    story, who = Story(), key()
    told = [story.register(who)]
    first = story.terms[who]
    told.append(story.register(who))
    second = story.terms[who]
    await tell(story, catalog, told, together)
    assert await database.run(VERSIONS) == [
        (who.id, first, 1, "registered", 2, "registered", "up", "passing"),
        (who.id, second, 2, "registered", None, None, "up", "passing"),
    ]
    assert await catalog.departures([who]) == {}
    await story.tell(catalog, story.leave(who))
    assert await catalog.departures([who]) == {who: (second, 3, "deregistered")}


async def test_who_came_and_left_within_one_batch(catalog: Catalog, database: Database) -> None:
    story, who, other = Story(), key(1), key(2)
    await story.tell(catalog, story.register(who), story.register(other), story.leave(who), story.register(who))
    assert [row[2:6] for row in await database.run(VERSIONS)] == [
        (1, "registered", 3, "deregistered"),
        (2, "registered", None, None),
        (4, "registered", None, None),
    ]
    assert await catalog.departures([who, other]) == {}
    assert {record.key for record in await catalog.records()} == {who, other}


async def test_departures_tells_of_the_last_life_of_each(catalog: Catalog) -> None:
    story = Story()
    keys = [key(number) for number in range(20)]
    for each in keys:
        await story.tell(catalog, story.register(each), story.expire(each), story.register(each), story.leave(each))
    await story.tell(catalog, story.register(keys[0]))
    said = await catalog.departures([*keys, Key("other", "orders", "i-0001")])
    assert said == {
        each: (story.terms[each], 4 * number + 4, "deregistered") for number, each in enumerate(keys) if number
    }
    assert await catalog.departures([]) == {}


async def test_the_times_are_those_of_the_events(catalog: Catalog, database: Database) -> None:
    story, who = Story(), key()
    await story.tell(catalog, story.register(who), story.leave(who))
    ((began, ended),) = await database.run("SELECT began_at, ended_at FROM history")
    assert [str(time).replace(" ", "T")[:26] for time in (began, ended)] == [
        "2026-02-02T02:40:00.124456",
        "2026-02-02T02:40:00.125456",
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_the_tables_do_not_depend_on_how_the_log_was_cut(catalog: Catalog, database: Database, seed: int) -> None:
    dice, story = random.Random(seed), Story()
    told = [_something(dice, story) for _ in range(120)]
    one_by_one = replay(told, [1] * len(told))
    await catalog.begin(EPOCH)
    cut = Story()
    while told:
        size = dice.randint(1, 30)
        await cut.tell(catalog, *told[:size])
        told = told[size:]
    assert await catalog.records() == sorted(one_by_one.records.values(), key=lambda record: record.key)
    rows = await database.run(
        "SELECT namespace, service, instance, began_revision, ended_revision FROM history ORDER BY 4"
    )
    open_rows = {Key(*row[:3]): row[3] for row in rows if row[4] is None}
    assert open_rows == {record.key: record.revision for record in one_by_one.records.values()}
    chains: dict[Key, list[tuple[int, int | None]]] = {}
    for row in rows:
        chains.setdefault(Key(*row[:3]), []).append(row[3:5])
    for chain in chains.values():
        assert all(ended is None or ended > began for began, ended in chain)
        assert all(before[1] is not None and before[1] <= after[0] for before, after in pairwise(chain))


async def tell(story: Story, catalog: Catalog, told: list[Message], together: bool) -> None:
    if together:
        await story.tell(catalog, *told)
    else:
        for message in told:
            await story.tell(catalog, message)


def replay(told: list[Message], sizes: list[int]) -> Story:
    story = Story()
    for size in sizes:
        story.batch(told[:size])
        told = told[size:]
    return story


def _something(dice: random.Random, story: Story) -> Message:
    who = key(dice.randint(1, 6), dice.choice(["orders", "payments"]))
    if who not in story.terms:
        return story.register(who)
    say = dice.choice(
        [story.register, story.update, story.lapse, story.resume, story.expire, story.leave, story.health]
    )
    return say(who)
