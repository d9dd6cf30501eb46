"""The guard against mass expiry: when it trips, that it ends, that a restart changes neither."""

from __future__ import annotations

import pytest

from adsum.events.lifecycle import Silence
from adsum.projector.guard import HOLD_TTLS, Guard
from adsum.projector.silence import Suspicion
from tests.making import key, record

TTL = 15.0
ORDERS = ("default", "orders")


def due(count: int, first: int = 0) -> list[Suspicion]:
    """So many instances of one service that are due to expire."""
    evidence = Silence(counter=1, silent=31.0, ttl=TTL)
    ids = range(first, first + count)
    return [Suspicion(record(key(f"i{n}"), ttl=TTL, liveness="stale"), "expired", evidence) for n in ids]


@pytest.mark.parametrize(
    ("dying", "living", "held"),
    [
        (1, 1, False),
        (2, 2, False),
        (3, 3, True),
        (3, 5, True),
        (3, 6, False),
        (4, 7, True),
        (50, 100, False),
        (51, 100, True),
    ],
)
def test_trips_at_more_than_half_and_at_least_three(dying: int, living: int, held: bool) -> None:
    guard = Guard()
    admitted = guard.admit(due(dying), {ORDERS: living}, clock=100.0)
    assert len(admitted) == (0 if held else dying)
    assert guard.holding == ({ORDERS} if held else set())


def test_the_hold_ends_by_itself() -> None:
    """Fault 7: protection that never ends."""
    guard = Guard()
    dead = due(5)
    assert guard.admit(dead, {ORDERS: 5}, clock=100.0) == []
    assert guard.admit(dead, {ORDERS: 5}, clock=100.0 + HOLD_TTLS * TTL) == []
    assert guard.admit(dead, {ORDERS: 5}, clock=100.1 + HOLD_TTLS * TTL) == dead
    assert guard.holding == set()


def test_a_restart_neither_ends_nor_renews_the_hold() -> None:
    guard = Guard()
    guard.admit(due(5), {ORDERS: 5}, clock=100.0)
    for clock in (110.0, 130.0, 159.9):
        guard = Guard(guard.held)
        assert guard.holding == {ORDERS}
        assert guard.admit(due(5), {ORDERS: 5}, clock=clock) == []
    guard = Guard(guard.held)
    assert len(guard.admit(due(5), {ORDERS: 5}, clock=160.1)) == 5


def test_those_that_went_within_one_ttl_count() -> None:
    guard = Guard()
    for suspicion in guard.admit(due(2), {ORDERS: 4}, clock=100.0):
        guard.expired(suspicion, 100.0)
    assert guard.admit(due(1, first=2), {ORDERS: 2}, clock=110.0) == []


def test_a_slow_trickle_is_no_mass_expiry() -> None:
    guard, living, clock = Guard(), 4, 100.0
    for n in range(4):
        [suspicion] = guard.admit(due(1, first=n), {ORDERS: living}, clock)
        guard.expired(suspicion, clock)
        living, clock = living - 1, clock + TTL + 1


def test_when_they_are_heard_again_the_hold_is_over_and_a_later_one_is_new() -> None:
    guard = Guard()
    guard.admit(due(5), {ORDERS: 5}, clock=100.0)
    guard.admit([], {ORDERS: 5}, clock=101.0)
    assert guard.held == ()
    assert guard.admit(due(5), {ORDERS: 5}, clock=500.0) == []


def test_services_do_not_share_a_hold() -> None:
    guard = Guard()
    evidence = Silence(counter=1, silent=31.0, ttl=TTL)
    other = Suspicion(record(key("x", service="other"), liveness="stale"), "expired", evidence)
    admitted = guard.admit([*due(5), other], {ORDERS: 5, ("default", "other"): 1}, clock=100.0)
    assert admitted == [other]
