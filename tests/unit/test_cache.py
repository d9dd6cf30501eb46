"""The cache converges to the same set whatever order it hears things in, and never goes back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.clients.cache import OVERTAKEN_WITHIN, Cache, differences
from adsum.clients.changes import Changes, seen_with
from adsum.events.description import Endpoint
from adsum.events.digest import Digest
from adsum.events.signals import Departed, Instance, ServiceMark, Topology

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


def mark_of(*instances: Instance, revision: int = 1 << 30, epoch: str = "e1") -> ServiceMark:
    """The mark of a set, by somebody who knows of everything up to `revision`."""
    return ServiceMark(epoch=epoch, round=1, revision=revision, count=len(instances), digest=digest_of(*instances))


def histories(epochs: tuple[str, ...] = ("e1", "e2")) -> st.SearchStrategy[list[Topology]]:
    """What a projector told, in its order: per (epoch, revision) one state or tombstone of one of four instances."""
    told = st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.booleans(), st.sampled_from(epochs))

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
    epochs = {instance.epoch for instance in cache.present.values()} or {"e1"}
    mark = mark_of(*cache.present.values(), epoch=max(epochs))
    assert cache.matches(mark, 0.0) == (len(epochs) == 1)  # a set of two logs is none that a leader tells of


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
    cache.apply(A, 0.0)
    cache.apply(B, 0.0)
    assert cache.matches(mark_of(A, B), 0.0)
    assert cache.matches(mark_of(A, revision=1), 0.0)
    assert not cache.matches(mark_of(A, B, C), 0.0)


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
        ([A, B, LOST, present("c", 9)], [A]),  # the mark was overtaken by what came after the loss
    ],
)
def test_a_set_that_came_back_to_what_it_was_without_this_cache_is_missed_at_once(
    heard: list[Topology | str], told: list[Instance]
) -> None:
    cache = Cache()
    for one in heard:
        if not isinstance(one, str):
            cache.apply(one, 0.0)
    assert not cache.matches(mark_of(*told, revision=5), 0.0)


def test_a_change_that_somebody_invented_excuses_the_true_marks_for_a_moment_only() -> None:
    cache = Cache()
    cache.apply(A, 0.0)
    cache.apply(present("ghost", 1 << 40), 10.0)
    assert cache.matches(mark_of(A, revision=9), 10.0 + OVERTAKEN_WITHIN)
    assert not cache.matches(mark_of(A, revision=9), 10.1 + OVERTAKEN_WITHIN)


@given(histories(("e1",)), st.data())
def test_what_was_lost_is_never_proven_and_what_was_overtaken_always(
    history: list[Topology], data: st.DataObject
) -> None:
    """A mark after each change, some changes lost: the newest is proven only by the set that it tells of."""
    lost = data.draw(st.sets(st.sampled_from(range(len(history))))) if history else set()
    cache, marks = Cache(), []
    for at, told in enumerate(history):
        if at not in lost:
            cache.apply(told, 0.0)
        present = truth(history[: at + 1])
        marks.append(mark_of(*present.values(), revision=told.revision))
        assert cache.matches(marks[-1], 0.0) == (cache.present == present)
        if not lost:
            assert all(cache.matches(mark, 0.0) for mark in marks)


def test_the_same_revisions_in_another_log_are_not_the_same_set() -> None:
    cache = Cache()
    cache.apply(A, 0.0)
    cache.apply(B, 0.0)
    assert not cache.matches(mark_of(A, B, epoch="e2"), 0.0)
    cache.apply(present("a", 1, "e2"), 0.0)
    assert not cache.matches(mark_of(A, B, epoch="e2"), 0.0)
    cache.apply(present("b", 2, "e2"), 0.0)
    assert cache.matches(mark_of(A, B, epoch="e2"), 0.0)


def test_a_set_of_the_past_proves_nothing_in_a_log_of_a_lower_epoch() -> None:
    cache = Cache()
    cache.apply(present("a", 1, "e2"), 0.0)
    cache.apply(gone("a", 2, "e2"), 0.0)
    assert not cache.matches(mark_of(A, revision=1), 0.0)
    assert cache.matches(mark_of(), 0.0)


def test_the_sets_on_the_way_to_a_whole_snapshot_match_nothing() -> None:
    cache = Cache()
    for told in (A, B):
        cache.load(told)
    cache.loaded()
    assert cache.matches(mark_of(A, B), 0.0)
    assert not cache.matches(mark_of(A, revision=1), 0.0)
    assert not cache.matches(mark_of(revision=0), 0.0)


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
