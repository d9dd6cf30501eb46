"""Outliers: when one is left out, for how long, and how it comes back. The clock is the test's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.clients import Outliers
from adsum.events.errors import InvalidValue
from tests.choosing import Crowd, ids


def test_so_many_failures_in_a_row_leave_one_out_for_a_while() -> None:
    """The fifth does; a success in between begins the row anew."""
    crowd = Crowd("a", "b", "c")
    selection = crowd.select()
    crowd.fail(selection, "a", 4)
    [a] = [one for one in selection.members if one.instance.id == "a"]
    selection.begun(a).succeeded()
    crowd.fail(selection, "a", 4)
    assert ids(selection.members) == ["a", "b", "c"]
    selection.begun(a).failed()
    assert {selection.pick().instance.id for _ in range(6)} == {"b", "c"}
    assert ids(selection.members) == ["b", "c"]
    assert {selection.pick().instance.id for _ in range(6)} == {"b", "c"}
    crowd.clock.now += 29.9
    assert {selection.pick().instance.id for _ in range(6)} == {"b", "c"}
    crowd.clock.now += 0.2
    assert {selection.pick().instance.id for _ in range(6)} == {"a", "b", "c"}


def test_one_call_is_the_trial_and_no_second_one_begins_meanwhile() -> None:
    """While it is under way nobody else is sent there; what it tells decides."""
    crowd = Crowd("a", "b")
    selection = crowd.select()
    crowd.fail(selection, "a")
    [b] = selection.members
    crowd.clock.now += 30
    [a] = [one for one in selection.members if one is not b]
    trial = selection.begun(a)
    assert selection.members == (b,)
    trial.failed()
    assert selection.members == (b,)
    crowd.clock.now += 59.9  # twice as long the second time
    assert selection.members == (b,)
    crowd.clock.now += 0.1
    selection.begun(a).succeeded()
    assert set(selection.members) == {a, b}
    crowd.fail(selection, "a", 4)  # a new row
    assert set(selection.members) == {a, b}


def test_a_trial_of_which_nothing_is_known_makes_room_for_another() -> None:
    """When it is abandoned at once, when nobody ever says anything after 30 s; and its late word counts no more."""
    crowd = Crowd("a", "b")
    selection = crowd.select()
    crowd.fail(selection, "a")
    crowd.clock.now += 30
    [a] = [one for one in selection.members if one.instance.id == "a"]
    selection.begun(a).abandoned()
    assert ids(selection.members) == ["a", "b"]
    forgotten = selection.begun(a)
    assert ids(selection.members) == ["b"]
    crowd.clock.now += 30
    assert ids(selection.members) == ["a", "b"]
    second = selection.begun(a)
    forgotten.succeeded()
    assert ids(selection.members) == ["b"]
    second.succeeded()
    assert ids(selection.members) == ["a", "b"]


def test_the_time_grows_to_a_bound_and_is_forgotten_in_good_times() -> None:
    """30, 60, 90 and so on, 300 at most; one step less for each 10 s that it was well."""
    crowd = Crowd("a", "b")
    selection = crowd.select()

    def seconds_out() -> float:
        return crowd.outliers.due - crowd.clock.now

    crowd.fail(selection, "a")
    [b] = selection.members
    told = [seconds_out()]
    for _ in range(11):
        crowd.clock.now += seconds_out()
        [a] = [one for one in selection.members if one is not b]
        selection.begun(a).failed()
        told.append(seconds_out())
    assert told == [min(300, 30 * n) for n in range(1, 13)]
    crowd.clock.now += seconds_out()
    [a] = [one for one in selection.members if one is not b]
    selection.begun(a).succeeded()
    crowd.clock.now += 95  # of twelve ejections nine are forgotten
    crowd.fail(selection, "a")
    assert seconds_out() == 4 * 30


@pytest.mark.parametrize(
    ("share", "count", "left"),
    [(0.5, 10, 5), (0.5, 3, 2), (0.5, 2, 1), (0.5, 1, 1), (0.1, 5, 4), (1.0, 4, 1), (0, 4, 4)],
)
def test_at_most_a_share_is_left_out_at_least_one_and_never_all(share: float, count: int, left: int) -> None:
    """All fail: those who failed first are out. Panic is off, or it would let all in again."""
    names = [f"n{n}" for n in range(count)]
    crowd = Crowd(*names)
    crowd.outliers = Outliers(share=share, clock=crowd.clock)
    selection = crowd.select(panic=0.0)
    everybody = selection.members
    for picked in everybody:
        crowd.clock.now += 0.001
        for _ in range(5):
            selection.begun(picked).failed()
    assert ids(selection.members) == names[count - left :]


def test_all_selections_of_a_process_share_what_calls_tell_and_another_life_begins_anew() -> None:
    """A life is a term; so is another address."""
    crowd = Crowd("a", "b")
    one, other = crowd.select(), crowd.select()
    crowd.fail(one, "a")
    assert ids(other.members) == ["b"]
    crowd.put("a", metadata={"mood": "better"})
    assert ids(other.members) == ["b"]
    crowd.put("a", term="another")
    assert ids(one.members) == ids(other.members) == ["a", "b"]


def test_what_was_called_before_it_was_left_out_tells_nothing_of_its_trial() -> None:
    """Neither closes nor lengthens it."""
    crowd = Crowd("a", "b")
    selection = crowd.select()
    [a, _] = selection.members
    slow, slower = selection.begun(a), selection.begun(a)
    crowd.fail(selection, "a")
    due = crowd.outliers.due
    slow.succeeded()
    slower.failed()
    assert crowd.outliers.due == due
    assert a.calls.outstanding == 0


def test_the_block_knows_failure_from_success_and_from_nothing() -> None:
    """An error that does not blame the peer is an answer; to be cancelled is none."""
    crowd = Crowd("a", "b")
    selection = crowd.select()
    [a, _] = selection.members

    def call(error: BaseException | None) -> int:
        def block() -> None:
            with selection.calling(a, OSError):
                if error is not None:
                    raise error

        if error is None:
            block()
        else:
            with pytest.raises(type(error)):
                block()
        return a.calls.failures

    assert [call(error) for error in (OSError(), ConnectionResetError(), KeyboardInterrupt())] == [1, 2, 2]
    assert [call(ValueError()), call(OSError()), call(None)] == [0, 1, 0]
    told = selection.begun(a)
    told.failed()
    told.succeeded()
    assert a.calls.failures == 1
    assert a.calls.outstanding == 0


def test_a_record_lives_no_longer_than_somebody_holds_it() -> None:
    """Of those who left nothing is kept, once their ejection is over."""
    crowd = Crowd("a", "b")
    selection = crowd.select()
    crowd.fail(selection, "a")
    assert len(crowd.outliers._known) == 2
    crowd.leave("a")
    selection.pick()
    crowd.clock.now += 30
    selection.pick()
    assert len(crowd.outliers._known) == 1
    assert crowd.outliers.due == math.inf


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["begin", "good", "bad", "unknown", "wait"])), max_size=150),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_whatever_happens_somebody_is_left_and_each_has_one_trial(steps: list[tuple[int, str]], share: float) -> None:
    """Calls of four in any order, told in any order, with time between."""
    crowd = Crowd("a", "b", "c", "d")
    crowd.outliers = Outliers(failures=2, share=share, clock=crowd.clock)
    selection = crowd.select(panic=0.0)
    everybody = selection.members
    under_way = [[selection.begun(picked)] for picked in everybody]
    for n, step in steps:
        if step == "wait":
            crowd.clock.now += 7
        elif step == "begin":
            under_way[n].append(selection.begun(everybody[n]))
        elif under_way[n]:
            call = under_way[n].pop(0)
            {"good": call.succeeded, "bad": call.failed, "unknown": call.abandoned}[step]()
        members = selection.members
        assert members
        for picked, calls in zip(everybody, under_way, strict=True):
            assert picked.calls.outstanding == len(calls)
            assert sum(call._trial == picked.calls.trial for call in calls if call._trial) <= 1
    crowd.clock.now += 600
    assert selection.members == everybody  # all may try again


@pytest.mark.parametrize(
    "given", [{"failures": 0}, {"first": 0}, {"longest": 1}, {"share": 1.5}, {"forget": 0}, {"decay": 0}, {"share": -1}]
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, float]) -> None:
    """With the rule."""
    with pytest.raises(InvalidValue, match=next(iter(given))):
        Outliers(**given)  # type: ignore[arg-type]
