"""Each policy keeps what it promises: fairness, proportion, few keys that move, bounded load."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adsum.clients import (
    ConsistentHash,
    LeastOutstanding,
    LowestLatency,
    PickFirst,
    RandomChoice,
    RoundRobin,
    Selection,
    WeightedRoundRobin,
    ZonePreferring,
)
from adsum.events.errors import InvalidValue
from tests.choosing import POLICIES, Crowd, ids

NAMES = [f"n{n}" for n in range(8)]
WEIGHTS = st.lists(st.integers(1, 9), min_size=1, max_size=7)
CHURN = st.lists(st.one_of(st.none(), st.sampled_from(NAMES)), max_size=120)
"""Picks (None) and, between them, who leaves if it is there and joins if it is not."""


def picks(selection: Selection, count: int, key: str | None = None) -> list[str]:
    """The ids of so many picks."""
    return [selection.pick(key).instance.id for _ in range(count)]


def toggle(crowd: Crowd, name: str) -> None:
    if name in {one.id for one in crowd.present}:
        crowd.leave(name)
    else:
        crowd.put(name)


# ---- round robin


@given(CHURN)
def test_between_two_turns_of_one_each_other_has_one(churn: list[str | None]) -> None:
    """Whoever comes and goes meanwhile: of those who are there all the time none is skipped and none comes twice."""
    crowd = Crowd(*NAMES[:3])
    selection = crowd.select()
    told: list[tuple[str, frozenset[str]]] = []  # who was picked, and who was there
    for name in churn:
        if name is not None:
            toggle(crowd, name)
        elif crowd.present:
            told.append((selection.pick().instance.id, frozenset(one.id for one in crowd.present)))
    for name in NAMES:
        turns = [at for at, (picked, _) in enumerate(told) if picked == name]
        for one, other in pairwise(turns):
            always = frozenset.intersection(*(there for _, there in told[one : other + 1]))
            if name in always:
                between = Counter(picked for picked, _ in told[one + 1 : other])
                assert {steady: between[steady] for steady in always - {name}} == dict.fromkeys(always - {name}, 1)


@pytest.mark.parametrize("policy", ["round robin", "weighted"])
def test_who_is_away_for_a_moment_loses_nothing(policy: str) -> None:
    """One that is gone whenever it is another one's turn has its own; one that is away at its turn has none."""
    crowd = Crowd("a", "b", "c", "d")
    selection = crowd.select(POLICIES[policy]())
    order = picks(selection, 4)
    for _ in range(10):
        crowd.put(order[3], health="critical")
        told = picks(selection, 3)
        crowd.put(order[3], health="passing")
        assert [*told, selection.pick().instance.id] == order
    crowd.put(order[0], health="critical")
    assert picks(selection, 3) == order[1:]


def test_a_line_is_no_longer_than_who_is_in_it() -> None:
    """Also where everybody is another one each time: nothing is kept of who left."""
    crowd = Crowd(*NAMES)
    for policy in (RoundRobin(), WeightedRoundRobin()):
        selection = crowd.select(policy)
        for n in range(60):
            crowd.leave(*(one.id for one in crowd.present if one.id not in NAMES))
            for m in range(10):
                crowd.put(f"new-{n}-{m}")
            selection.pick()
            line = policy._line if isinstance(policy, RoundRobin) else policy._queue
            assert len(line) <= 2 * 18 + 16
            assert len(policy._in_line if isinstance(policy, RoundRobin) else policy._turns) == len(line)


# ---- weighted round robin


@given(WEIGHTS, st.integers(0, 40))
@example([1, 1, 1, 1, 1, 3, 8], 4)  # fell together but for rounding, when all began at multiples of one
@example([1, 1, 1, 6, 5], 0)
def test_turns_match_the_weights_over_every_period(weights: list[int], skipped: int) -> None:
    """Any window of as many picks as the weights add up to has each as often as it weighs, evenly spread."""
    crowd = Crowd()
    for n, weight in enumerate(weights):
        crowd.put(f"n{n}", weight=weight / 4)
    selection = crowd.select(WeightedRoundRobin())
    picks(selection, skipped)
    period = sum(weights)
    told = picks(selection, 3 * period)
    wanted = {f"n{n}": weight for n, weight in enumerate(weights)}
    assert Counter(told[:period]) == Counter(told[-period:]) == wanted
    for n, weight in enumerate(weights):
        turns = [at for at, id in enumerate(told) if id == f"n{n}"]
        others = [other / weight for m, other in enumerate(weights) if m != n]
        for one, other in pairwise(turns):
            assert sum(map(math.floor, others)) <= other - one - 1 <= sum(map(math.ceil, others))


def test_a_heavy_one_is_spread_among_many_light_ones() -> None:
    """Not all of its turns first and then the light ones: never more than twice in a row, nor five others."""
    crowd = Crowd(*NAMES[:6])
    crowd.put("heavy", weight=6.0)
    told = "".join("h" if id == "heavy" else "-" for id in picks(crowd.select(WeightedRoundRobin()), 60))
    assert "hhh" not in told
    assert "-----" not in told


@given(CHURN, st.dictionaries(st.sampled_from(NAMES), st.sampled_from([0.01, 0.5, 1.0, 3.0, 1e9])))
def test_a_change_neither_skips_nor_favours(churn: list[str | None], weights: dict[str, float]) -> None:
    """Two who stay have turns in proportion to their weights, within one turn each, whoever comes and goes."""
    crowd = Crowd("steady", "heavy")
    crowd.put("heavy", weight=2.0)
    selection = crowd.select(WeightedRoundRobin())
    told: Counter[str] = Counter()
    for name in churn:
        if name is not None:
            toggle(crowd, name)
            if name in weights and any(one.id == name for one in crowd.present):
                crowd.put(name, weight=weights[name])
        told[selection.pick().instance.id] += 1
        assert abs(told["heavy"] / 2 - told["steady"]) <= 1.5


def test_who_joins_late_has_no_turns_to_catch_up_with() -> None:
    """After a thousand picks it has its share from now on, and no more."""
    crowd = Crowd("a", "b", "c")
    selection = crowd.select(WeightedRoundRobin())
    picks(selection, 1000)
    crowd.put("late")
    assert Counter(picks(selection, 40)) == {"a": 10, "b": 10, "c": 10, "late": 10}


# ---- random, first


def test_random_is_in_proportion_and_first_is_what_all_agree_on() -> None:
    """4 to 1, within four standard deviations; the first by service and id, in whatever order they came."""
    crowd = Crowd("b", "c", "a")
    crowd.put("c", weight=8.0)
    told = Counter(picks(crowd.select(RandomChoice(random.Random(7).random)), 10_000))
    assert abs(told["c"] - 8000) < 160
    assert abs(told["a"] - told["b"]) < 160
    firsts = Counter(ids(crowd.select(RandomChoice(random.Random(n).random)).ordered())[0] for n in range(1000))
    assert abs(firsts["c"] - 800) < 60
    selection = crowd.select(PickFirst())
    assert picks(selection, 3) == ["a", "a", "a"]
    assert ids(selection.ordered()) == ["a", "b", "c"]
    crowd.leave("a")
    assert picks(selection, 2) == ["b", "b"]
    edge = crowd.select(RandomChoice(lambda: 1 - 2**-53))
    assert edge.pick() in edge.members


# ---- least outstanding, lowest latency


def test_whoever_owes_fewer_answers_is_picked() -> None:
    """Of two it is always the better one; of three the one who owes most never."""
    crowd = Crowd("a", "b")
    selection = crowd.select(LeastOutstanding(random.Random(1).random))
    for _ in range(10):
        selection.begun(selection.pick())
    assert [one.calls.outstanding for one in selection.members] == [5, 5]
    crowd.put("c")
    calls = [selection.begun(one) for one in selection.members if one.instance.id == "b"]
    assert set(picks(selection, 50)) == {"a", "c"}
    assert ids(selection.ordered()) == ["c", "a", "b"]
    calls[0].succeeded()
    assert set(picks(selection, 100)) == {"a", "b", "c"}


def test_the_heavier_one_is_given_more_at_once() -> None:
    """With three times the weight, three times as many calls under way."""
    crowd = Crowd("light")
    crowd.put("heavy", weight=3.0)
    selection = crowd.select(LeastOutstanding(random.Random(1).random))
    for _ in range(40):
        selection.begun(selection.pick())
    assert {one.instance.id: one.calls.outstanding for one in selection.members} == {"light": 10, "heavy": 30}


def test_the_faster_one_is_picked_and_a_slow_answer_counts_at_once() -> None:
    """Then it is forgotten by and by; who fails at once is not fast; who is new is tried by one call at a time."""
    crowd = Crowd("a", "b")
    selection = crowd.select(LowestLatency(10.0, draw=random.Random(1).random, clock=crowd.clock))
    a, b = selection.members

    def measured(one: object, seconds: float, *, good: bool = True) -> None:
        assert one in (a, b)
        call = selection.begun(a if one is a else b)
        crowd.clock.now += seconds
        (call.succeeded if good else call.failed)()

    measured(a, 0.010)
    assert set(picks(selection, 9)) == {"b"}  # nobody called it yet
    first = selection.begun(b)
    assert set(picks(selection, 9)) == {"a"}  # and nobody else does till it answered
    first.abandoned()
    measured(b, 0.050)
    assert set(picks(selection, 9)) == {"a"}
    measured(a, 2.0)
    assert a.calls.latency == pytest.approx(2.0)
    assert set(picks(selection, 9)) == {"b"}
    measured(a, 0.010)
    assert a.calls.latency > 1.9
    measured(b, 0.001, good=False)
    assert b.calls.latency >= 1.0
    crowd.clock.now += 60
    for _ in range(20):
        measured(a, 0.010)
    assert a.calls.latency < 0.1
    for one in (a, b):
        for _ in range(60):
            measured(one, 0.010)
            crowd.clock.now += 1
    crowd.clock.now += 1000
    a.calls.measured_at = b.calls.measured_at = crowd.clock.now
    a.calls.latency, b.calls.latency = 0.010, 0.012
    assert ids(selection.ordered()) == ["a", "b"]
    busy = [selection.begun(a)]
    assert ids(selection.ordered()) == ["b", "a"]  # two at a time take longer than one
    assert set(picks(selection, 9)) == {"b"}
    busy[0].abandoned()


# ---- zones


@pytest.mark.parametrize(("healthy", "stays"), [(100, 100), (72, 100), (71, 99), (50, 70), (25, 35), (1, 1), (0, 0)])
@pytest.mark.parametrize("keyed", [False, True])
def test_the_part_that_is_missing_spills_over(healthy: int, stays: int, keyed: bool) -> None:
    """Envoy's table for two priority levels of which the second is well; with keys the same ones each time."""
    crowd = Crowd(*(f"near{n}" for n in range(100)), zone="here")
    for n in range(100):
        crowd.put(f"far{n}", zone="there")
    for n in range(healthy, 100):
        crowd.put(f"near{n}", liveness="stale")
    selection = crowd.select(ZonePreferring("here", ConsistentHash if keyed else RoundRobin))
    told = [selection.pick(f"key-{n}" if keyed else None).instance for n in range(1000)]
    assert sum(one.zone == "here" for one in told) == pytest.approx(10 * stays, abs=40 if keyed else 6)
    if keyed:
        assert [selection.pick(f"key-{n}").instance for n in range(1000)] == told


def test_all_go_where_somebody_is_and_order_follows_the_zone() -> None:
    """Nobody near: everybody far. Then back. Near ones come first in the list."""
    crowd = Crowd("far", zone="there")
    selection = crowd.select(ZonePreferring("here"))
    assert picks(selection, 3) == ["far"] * 3
    crowd.put("near", zone="here")
    assert picks(selection, 3) == ["near"] * 3
    assert ids(selection.ordered()) == ["near", "far"]
    crowd.leave("far")
    assert picks(selection, 2) == ["near"] * 2
    for make in (lambda: ZonePreferring(""), lambda: ZonePreferring("x", factor=0), lambda: ZonePreferring("x", _same)):
        with pytest.raises(InvalidValue):
            make()


SHARED = RoundRobin()


def _same() -> RoundRobin:
    return SHARED


# ---- all


@pytest.mark.parametrize("policy", POLICIES)
@given(weights=st.lists(st.floats(min_value=5e-324, max_value=1.7976931348623157e308), min_size=1, max_size=5))
def test_any_weight_that_is_allowed_will_do(policy: str, weights: list[float]) -> None:
    """From the least float to the largest: nothing overflows, and somebody is picked."""
    crowd = Crowd()
    selection = crowd.select(POLICIES[policy]())
    for n, weight in enumerate(weights):
        crowd.put(f"n{n}", weight=weight, zone="here" if n % 2 else "")
        for key in range(5):
            selection.begun(selection.pick(f"{key}"))
        assert len(selection.ordered("key")) == n + 1
