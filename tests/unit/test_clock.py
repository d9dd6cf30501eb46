"""The observed clock: pure, so every law of it can be checked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adsum.projector.clock import TICK_INTERVAL, ObservedClock

GAPS = st.lists(st.floats(min_value=0, max_value=1e5), max_size=50)


def test_stands_until_the_second_tick() -> None:
    clock = ObservedClock(40.0)
    assert clock.at(1e9) == 40.0
    clock.tick(500.0)
    assert clock.value == 40.0
    clock.tick(501.0)
    assert clock.value == 41.0


def test_a_standstill_counts_two_intervals_at_most() -> None:
    clock = ObservedClock()
    clock.tick(10.0)
    clock.tick(10.0 + 75.0)
    assert clock.value == 2 * TICK_INTERVAL


def test_between_ticks_it_shows_what_a_tick_would() -> None:
    clock = ObservedClock()
    clock.tick(10.0)
    assert clock.at(10.5) == 0.5
    assert clock.at(99.0) == 2 * TICK_INTERVAL
    assert clock.at(9.0) == 0.0
    assert clock.value == 0.0


@given(GAPS)
def test_never_goes_back_and_never_faster_than_the_readers_clock(gaps: list[float]) -> None:
    clock, now, ticks = ObservedClock(), 0.0, 0
    for gap in gaps:
        before, now = clock.value, now + gap
        clock.tick(now)
        ticks += 1
        assert before <= clock.value <= before + min(gap, 2 * TICK_INTERVAL) + 1e-6
    assert clock.value <= min(now, 2 * TICK_INTERVAL * ticks) + 1e-6


@given(GAPS, st.floats(min_value=-1e12, max_value=1e12))
def test_what_the_readers_clock_shows_does_not_matter(gaps: list[float], origin: float) -> None:
    """Only differences count: a monotonic clock that starts anywhere gives the same outcome."""
    one, other, now = ObservedClock(), ObservedClock(), 0.0
    for gap in gaps:
        now += round(gap)
        one.tick(now)
        other.tick(round(origin) + now)
    assert abs(one.value - other.value) < 1e-3 * (len(gaps) + 1)


def test_a_reader_that_begins_a_clock_anew_counts_from_the_tick_that_it_read_before() -> None:
    clock = ObservedClock(40.0, ticked=10.0)
    clock.tick(11.0)
    assert clock.value == 41.0
    clock = ObservedClock(40.0, ticked=10.0)
    clock.tick(99.0)
    assert clock.value == 40.0 + 2 * TICK_INTERVAL
