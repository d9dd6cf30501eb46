"""The cache converges to the same set whatever order it hears things in, and never goes back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.clients.cache import EMPTY, OVERTAKEN_WITHIN, Cache, differences
from adsum.clients.changes import Changes, seen_with
from adsum.events.description import Endpoint
from adsum.events.digest import Digest
from adsum.events.signals import Departed, Instance, Topology

HERE = (Endpoint(host="h", port=1),)


def present(id: str, revision: int, epoch: str = "e1", capabilities: tuple[str, ...] = ()) -> Instance:
    return Instance(
        epoch=epoch, revision=revision, namespace="default", service="s", id=id, term="t", endpoints=HERE,
        heartbeat=5.0, ttl=15.0, capabilities=capabilities,
    )  # fmt: skip


def gone(id: str, revision: int, epoch: str = "e1") -> Departed:
    return Departed(epoch=epoch, revision=revision, namespace="default", service="s", id=id, term="t", reason="expired")


def digest_of(*instances: Instance) -> str:
    digest = Digest()
    for instance in instances:
        digest.add(instance.id, instance.revision)
    return digest.hex()


def histories() -> st.SearchStrategy[list[Topology]]:
    """What a projector told, in its order: per (epoch, revision) one state or tombstone of one of four instances."""
    told = st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.booleans(), st.sampled_from(["e1", "e2"]))

    def numbered(items: list[tuple[str, bool, str]]) -> list[Topology]:
        return [
            present(id, revision, epoch) if here else gone(id, revision, epoch)
            for revision, (id, here, epoch) in enumerate(items, 1)
        ]

    return st.lists(told, max_size=20).map(numbered)


def truth(history: list[Topology]) -> dict[str, Instance]:
    last: dict[str, Topology] = {}
    for told in sorted(history, key=lambda told: (told.epoch, told.revision)):
        last[told.id] = told
    return {id: told for id, told in last.items() if isinstance(told, Instance)}


@given(histories(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_any_order_and_any_repetition_come_to_the_same_set(
    history: list[Topology], order: random.Random, times: int
) -> None:
    heard = history * times
    order.shuffle(heard)
    cache = Cache()
    for told in heard:
        known = cache.present.get(told.id)
        change = cache.apply(told, 0.0)
        after = cache.present.get(told.id)
        if known is not None and after is not None:
            assert (after.epoch, after.revision) >= (known.epoch, known.revision)
        if change is not None:
            assert (change.before, change.after) == (known, after)
    assert cache.present == truth(history)
    assert cache.matches(len(cache.present), digest_of(*cache.present.values()), 0.0)


@given(histories(), histories())
def test_differences_lead_from_one_set_to_the_other(one: list[Topology], other: list[Topology]) -> None:
    old, new = Cache(), Cache()
    for told in one:
        old.load(told)
    for told in other:
        new.load(told)
    seen = dict(old.present)
    for change in differences(old, new):
        assert change.before == seen.get(change.instance.id)
        if change.after is not None:
            seen[change.after.id] = change.after
        else:
            del seen[change.instance.id]
    assert {id: (i.epoch, i.revision) for id, i in seen.items()} == {
        id: (i.epoch, i.revision) for id, i in new.present.items()
    }


@given(histories(), st.lists(st.integers(0, 3), max_size=20))
async def test_a_slow_reader_of_changes_arrives_at_the_same_set(history: list[Topology], reads: list[int]) -> None:
    cache, reader, seen = Cache(), Changes(()), dict[str, Instance]()
    pace = iter(reads)

    async def read(most: int) -> None:
        for _ in range(most):
            if not reader._pending:
                return
            change = await anext(reader)
            assert change.before == seen.get(change.instance.id)
            if change.after is not None:
                seen[change.after.id] = change.after
            else:
                del seen[change.instance.id]

    for told in history:
        change = cache.apply(told, 0.0)
        if change is not None:
            reader.add(change)
        assert len(reader._pending) <= 4
        await read(next(pace, 0))
    await read(99)
    assert seen == cache.present


def test_a_tombstone_keeps_an_older_state_out() -> None:
    cache = Cache()
    assert cache.apply(gone("a", 5), 0.0) is None
    assert cache.apply(present("a", 4), 0.0) is None
    assert not cache.present
    change = cache.apply(present("a", 6), 0.0)
    assert change is not None
    assert change.kind == "joined"


def test_tombstones_are_remembered_in_bounds() -> None:
    cache = Cache()
    for revision in range(5000):
        cache.apply(present(f"i{revision}", 2 * revision + 1), 0.0)
        cache.apply(gone(f"i{revision}", 2 * revision + 2), 0.0)
    assert len(cache._gone) == 256
    assert cache.apply(present("i4999", 9999), 0.0) is None


def test_a_higher_epoch_wins_with_a_lower_revision() -> None:
    cache = Cache()
    cache.apply(present("a", 500), 0.0)
    change = cache.apply(present("a", 3, epoch="e2"), 0.0)
    assert change is not None
    assert change.kind == "changed"
    assert cache.apply(present("a", 501), 0.0) is None


def test_a_mark_that_was_overtaken_still_matches_and_one_from_ahead_does_not() -> None:
    cache = Cache()
    one, two, three = present("a", 1), present("b", 2), present("c", 3)
    cache.apply(one, 0.0)
    cache.apply(two, 0.0)
    assert cache.matches(2, digest_of(one, two), 0.0)
    assert cache.matches(1, digest_of(one), 0.0)
    assert cache.matches(0, EMPTY, 0.0)
    assert not cache.matches(3, digest_of(one, two, three), 0.0)


A, B, C = present("a", 1), present("b", 2), present("c", 3)
LOST = "a tombstone that was lost"


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        ([A, LOST], []),  # nobody is there, as at the beginning
        ([A, B, LOST], [A]),
        ([A, B, C, LOST, LOST], [A]),
        ([A, gone("a", 2), C, LOST], []),
        ([A, present("a", 4), LOST], []),
    ],
)
def test_a_set_that_came_back_to_what_it_was_is_missed_once_its_past_is_over(
    heard: list[Topology | str], told: list[Instance]
) -> None:
    cache = Cache()
    for one in heard:
        if not isinstance(one, str):
            cache.apply(one, 10.0)
    mark = len(told), digest_of(*told)
    assert cache.matches(*mark, 10.0 + OVERTAKEN_WITHIN)  # it may have been overtaken by the last change
    assert not cache.matches(*mark, 10.1 + OVERTAKEN_WITHIN)


@given(histories(), st.data())
def test_what_was_lost_is_proven_for_a_moment_at_most_and_what_was_overtaken_always(
    history: list[Topology], data: st.DataObject
) -> None:
    """A change a second, some lost. A mark is proven if it tells of the set, or if it left less than the limit ago."""
    lost = data.draw(st.sets(st.sampled_from(range(len(history))))) if history else set()
    cache, marks = Cache(), [(0, EMPTY)]
    for at, told in enumerate(history):
        if at not in lost:
            cache.apply(told, float(at))
        present = truth(history[: at + 1]).values()
        marks.append((len(present), digest_of(*present)))
        if not lost:
            assert all(cache.matches(*mark, float(at)) for mark in marks[-1 - int(OVERTAKEN_WITHIN) :])
    after = len(history) + OVERTAKEN_WITHIN
    assert cache.matches(*marks[-1], after) == (cache.present == truth(history))


def test_the_sets_on_the_way_to_a_whole_snapshot_match_nothing() -> None:
    cache = Cache()
    one, two = present("a", 1), present("b", 2)
    for told in (one, two):
        cache.load(told)
    cache.loaded()
    assert cache.matches(2, digest_of(one, two), 0.0)
    assert not cache.matches(1, digest_of(one), 0.0)
    assert not cache.matches(0, EMPTY, 0.0)


async def test_who_came_and_left_while_the_reader_was_away_is_not_told() -> None:
    cache, reader = Cache(), Changes(())
    for told in (present("a", 1), gone("a", 2), present("b", 3)):
        change = cache.apply(told, 0.0)
        assert change is not None
        reader.add(change)
    assert (await anext(reader)).instance.id == "b"
    reader.end()
    assert [change async for change in reader] == []


def test_gaining_and_losing_a_capability_looks_like_joining_and_leaving() -> None:
    cache = Cache()
    kinds = []
    for told in (
        present("a", 1),
        present("a", 2, capabilities=("x",)),
        present("a", 3, capabilities=("x", "y")),
        present("a", 4, capabilities=("y",)),
        gone("a", 5),
    ):
        change = cache.apply(told, 0.0)
        assert change is not None
        seen = seen_with("x", change)
        kinds.append(seen.kind if seen is not None else None)
    assert kinds == [None, "joined", "changed", "left", None]
