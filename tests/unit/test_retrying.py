"""What is tried again, and for how long a dial is waited for: all combinations."""

from __future__ import annotations

import itertools

import pytest

from adsum.clients import Blame
from adsum.clients.peers.retrying import Budget, may_try_another, patience

U, B, D, A = Blame.UNREACHABLE, Blame.BROKEN, Blame.DECLINED, Blame.ANSWERED


@pytest.mark.parametrize(("blame", "idempotent", "attempts"), list(itertools.product(Blame, (False, True), (0, 1))))
def test_the_rules(blame: Blame, idempotent: bool, attempts: int) -> None:
    """What was not sent always, what was sent as often as is allowed, what perhaps was done if twice is as good."""
    allowed = {(U, False, 0), (U, False, 1), (U, True, 0), (U, True, 1), (D, False, 1), (D, True, 1), (B, True, 1)}
    assert may_try_another(blame, idempotent=idempotent, attempts_left=attempts, seconds_left=0.001) is (
        (blame, idempotent, attempts) in allowed
    )
    assert not may_try_another(blame, idempotent=idempotent, attempts_left=attempts, seconds_left=0.0)


def test_all_dials_of_one_call_fit_into_its_time() -> None:
    """Each waits for a part of what the ones before have left, and there is a bound to their number."""
    assert patience(60.0) == 2.0
    assert patience(2.0) == 0.5
    for seconds in (0.2, 2.0, 8.0):
        left, dials = seconds, 0
        while left > 0:
            left, dials = left - patience(left), dials + 1
        assert dials <= 20
    assert patience(0.001) == 0.05


def test_the_budget_bounds_what_is_sent_again() -> None:
    """The reserve first, then one in five calls; it is never more than full."""
    budget = Budget(reserve=3.0, gain=0.2)
    assert [budget.spend() for _ in range(5)] == [True, True, True, False, False]
    again = 0
    for _ in range(1000):
        budget.earn()
        again += budget.spend()
    assert again in (199, 200)
    for _ in range(1000):
        budget.earn()
    assert sum(budget.spend() for _ in range(10)) == 3
