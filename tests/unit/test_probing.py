"""When reports have an endpoint probed, and what the probes come to: tables, and properties of any order of events."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.projector.prober import room
from adsum.projector.probing import (
    AT_ONCE,
    BACKOFF,
    BETWEEN,
    FAILURES,
    MOST,
    MOST_CALLERS,
    REST,
    Finding,
    Probing,
    Target,
)
from tests.making import key


class Time:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def target(id: str = "a", endpoint: str = "main") -> Target:
    return Target(key(id), "t-1", endpoint)


ONE = target()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def probing(time: Time) -> Probing:
    return Probing(time)


def fail(probing: Probing, time: Time, times: int = FAILURES) -> Finding:
    """So many probes that are due fail, one after the other; what the last one came to."""
    finding: Finding = "nothing"
    for _ in range(times):
        time.now += probing.wait()
        assert probing.begin() == [ONE]
        finding = probing.found(ONE, False)
    return finding


def test_nothing_is_probed_that_nobody_reported(probing: Probing) -> None:
    assert probing.begin() == []
    assert probing.wait() == math.inf
    assert probing.idle


def test_it_is_idle_only_while_nothing_is_due_or_under_way(probing: Probing, time: Time) -> None:
    probing.heard(ONE, "x")
    assert not probing.idle
    probing.begin()
    assert not probing.idle
    probing.found(ONE, True)
    assert probing.idle


def test_a_storm_of_reports_makes_one_probe(probing: Probing, time: Time) -> None:
    for number in range(5_000):
        probing.heard(ONE, f"caller-{number}")
    assert probing.begin() == [ONE]
    for number in range(5_000):
        probing.heard(ONE, f"caller-{number}")
    assert probing.begin() == []
    assert probing.found(ONE, True) == "nothing"
    time.now += REST / 2
    probing.heard(ONE, "late")
    assert probing.begin() == []
    assert (probing.reports, probing.probes) == (10_001, 1)


def test_after_a_rest_a_report_has_it_probed_again(probing: Probing, time: Time) -> None:
    probing.heard(ONE, "x")
    probing.begin()
    probing.found(ONE, True)
    time.now += REST
    probing.heard(ONE, "x")
    assert probing.begin() == [ONE]


def test_one_failure_is_not_enough_and_needs_no_other_report(probing: Probing, time: Time) -> None:
    probing.heard(ONE, "x")
    assert fail(probing, time, 1) == "nothing"
    assert probing.wait() == BETWEEN
    assert fail(probing, time, 1) == "unreachable"
    assert probing.wait() == math.inf


@pytest.mark.parametrize("between", [True, None])
def test_failures_count_only_in_a_row(probing: Probing, time: Time, between: bool | None) -> None:
    for _ in range(5):
        probing.heard(ONE, "x")
        assert fail(probing, time, 1) == "nothing"
        time.now += BETWEEN
        assert probing.begin() == [ONE]
        assert probing.found(ONE, between) == "nothing"
        time.now += REST


def test_who_is_held_is_probed_less_and_less_often_until_it_answers(probing: Probing, time: Time) -> None:
    probing.hold(ONE)
    waits = []
    for _ in range(8):
        waits.append(probing.wait())
        time.now += waits[-1]
        assert probing.begin() == [ONE]
        assert probing.found(ONE, False) == "nothing"
    assert waits == [2, 2, 4, 8, 16, 32, 60, 60]
    time.now += probing.wait()
    assert probing.begin() == [ONE]
    assert probing.found(ONE, True) == "reachable"
    assert probing.held == [ONE], "until it is said"
    probing.release(ONE)
    assert (probing.held, probing.wait()) == ([], math.inf)


def test_what_is_found_reachable_and_cannot_be_said_is_probed_again(probing: Probing, time: Time) -> None:
    probing.hold(ONE)
    time.now += BACKOFF[0]
    probing.begin()
    probing.found(ONE, True)
    probing.again(ONE)
    assert probing.wait() == BETWEEN


def test_what_is_found_unreachable_and_cannot_be_said_must_be_found_so_again(probing: Probing, time: Time) -> None:
    probing.heard(ONE, "x")
    assert fail(probing, time) == "unreachable"
    probing.again(ONE)
    assert fail(probing, time, 1) == "unreachable"
    probing.again(ONE)
    time.now += BETWEEN
    probing.begin()
    assert probing.found(ONE, True) == "nothing"


def test_callers_are_told_apart_up_to_a_bound_and_forgotten_once_it_answers(probing: Probing, time: Time) -> None:
    for number in range(100):
        probing.heard(ONE, f"caller-{number % 3}")
    assert probing.callers(ONE) == 3
    for number in range(100):
        probing.heard(ONE, f"caller-{number}")
    assert probing.callers(ONE) == MOST_CALLERS
    probing.begin()
    probing.found(ONE, True)
    assert probing.callers(ONE) == 0


def test_only_so_many_at_once_the_longest_due_first(probing: Probing, time: Time) -> None:
    targets = [target(f"i-{number}") for number in range(2 * AT_ONCE)]
    for one in targets:
        probing.heard(one, "x")
        time.now += 0.001
    assert probing.begin() == targets[:AT_ONCE]
    assert probing.begin() == []
    assert probing.wait() == math.inf, "or whoever waits would ask without a pause"
    probing.found(targets[0], True)
    assert probing.wait() == 0
    assert probing.begin() == [targets[AT_ONCE]]


def test_what_is_kept_in_mind_is_bounded(probing: Probing, time: Time) -> None:
    for number in range(2 * MOST):
        probing.heard(target(f"i-{number}"), "x")
    assert len(probing._states) == MOST
    assert probing.reports == 2 * MOST
    while begun := probing.begin():
        for one in begun:
            probing.found(one, True)
    time.now += REST
    probing.tidy(lambda _: True)
    assert len(probing._states) == 0


def test_whose_life_is_over_is_forgotten(probing: Probing) -> None:
    probing.hold(ONE)
    probing.hold(target("b"))
    probing.tidy(lambda one: one != ONE)
    assert probing.held == [target("b")]


def test_each_endpoint_is_judged_for_itself(probing: Probing, time: Time) -> None:
    other = target(endpoint="admin")
    probing.heard(ONE, "liar")
    probing.heard(other, "x")
    for _ in range(FAILURES):
        time.now += probing.wait()
        found = {one: probing.found(one, one == ONE) for one in probing.begin()}
    assert found == {other: "unreachable"}


@pytest.mark.parametrize(("up", "most"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (100, 50)])
def test_probes_take_at_most_half_of_a_service(up: int, most: int) -> None:
    assert [room(up, critical) for critical in range(up + 1)] == [critical < most for critical in range(up + 1)]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["report", "wait", "begin", "answer", "refuse", "unknown", "again", "hold", "release", "tidy"]),
        st.sampled_from([target("a"), target("b"), target("b", "admin")]),
    ),
    max_size=80,
)


@given(STEPS)
def test_whatever_comes_nobody_is_unreachable_but_by_probes_that_failed_in_a_row(
    steps: list[tuple[str, Target]],
) -> None:
    """And no endpoint is probed twice at a time, nor begun more often than its probes are apart."""
    time = Time()
    probing = Probing(time)
    under_way: list[Target] = []
    row: dict[Target, int] = {}
    for step, one in steps:
        if step == "report":
            probing.heard(one, "x")
        elif step == "wait":
            time.now += BETWEEN
        elif step == "begin":
            begun = probing.begin()
            assert not set(begun) & set(under_way)
            under_way += begun
        elif step in ("answer", "refuse", "unknown") and under_way:
            one, reached = under_way.pop(0), {"answer": True, "refuse": False, "unknown": None}[step]
            held = one in probing.held
            row[one] = row.get(one, 0) + 1 if reached is False else 0
            finding = probing.found(one, reached)
            assert finding != "unreachable" or (not held and row[one] >= FAILURES)
            assert finding != "reachable" or (held and reached)
        elif step == "again" and row.get(one, 0) >= FAILURES - 1:
            probing.again(one)
        elif step == "hold":
            probing.hold(one)
        elif step == "release":
            probing.release(one)
        elif step == "tidy":
            probing.tidy(lambda _: True)
        assert len(under_way) <= AT_ONCE
