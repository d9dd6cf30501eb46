"""What to do after a call or a dial went wrong, and how long to wait for a dial. Pure.

A call that may not have been done before may be tried on another peer whenever nothing of it was sent, or the peer
says that it did nothing. What perhaps was done is tried again only where the caller says that twice is as good as once.
"""

from __future__ import annotations

from .dialing import Blame

__all__ = ["Budget", "is_overdue", "may_try_another", "patience"]

SHARE = 0.25
"""Of the time that is left, for which one dial is waited for before somebody else is tried as well."""
LONGEST, SHORTEST = 2.0, 0.05
"""Seconds of that: who takes longer than the first has lost packets, or is not there; the second bounds the dials."""


def may_try_another(blame: Blame, *, idempotent: bool, attempts_left: int, seconds_left: float) -> bool:
    """Whether the rules allow it. `attempts_left`: how many more times it may be sent."""
    if seconds_left <= 0 or blame is Blame.ANSWERED:
        return False
    if blame is Blame.UNREACHABLE:
        return True
    return attempts_left > 0 and (idempotent or blame is Blame.DECLINED)


def patience(seconds_left: float) -> float:
    """Seconds for which one dial is waited for before somebody else is tried as well; it goes on behind."""
    return max(min(SHARE * seconds_left, LONGEST), SHORTEST)


def is_overdue(seconds: float) -> bool:
    """Whether a dial that goes on for so long says something of the peer, and not of a caller who is in a hurry."""
    return seconds >= LONGEST


class Budget:
    """How many calls may be sent once more, so that a service which fails them all does not get several times as many.

    As in Finagle (`RetryBudget`): each call adds a part of one, each repetition takes one, and there is a reserve,
    which is full at first. What never reached a peer is no load to it, and is not asked for here.
    """

    __slots__ = ("_gain", "_left", "_reserve")

    def __init__(self, reserve: float = 500.0, gain: float = 0.2) -> None:
        self._reserve, self._gain, self._left = reserve, gain, reserve

    def earn(self) -> None:
        """A call begins."""
        if self._left < self._reserve:
            self._left += self._gain

    def spend(self) -> bool:
        """Whether one more may be sent again; then it counts."""
        if self._left < 1:
            return False
        self._left -= 1
        return True
