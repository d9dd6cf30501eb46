"""What was heard of each life: the highest counter, and the observed clock when it was read. Pure.

A life is heard when a higher counter of its term is read, and by nothing else. Beats of terms that are not folded
yet are kept for a while, since heartbeats and the log come by different ways.
"""

from __future__ import annotations

from collections.abc import Iterable

from .catalog import Heard

__all__ = ["Hearing"]

UNKNOWN_KEPT = 60.0
"""Seconds of observed time for which a term that no live record bears is remembered."""


class Hearing:
    """The last heartbeat of each life, and what of it was not written down yet. Only live terms are written down."""

    def __init__(self, heard: Iterable[Heard] = ()) -> None:
        self._heard = {life.term: (life.counter, life.at) for life in heard}
        self._live: set[str] = set()
        self._unwritten: set[str] = set()
        self._ended: set[str] = set(self._heard)

    def hear(self, term: str, counter: int, at: float) -> bool:
        """A counter was read when the observed clock showed `at`; whether it is news."""
        known = self._heard.get(term)
        if known is not None:
            if counter <= known[0]:
                return False
            at = max(at, known[1])  # after a restart the clock goes on from a little before what was heard last
        self._heard[term] = (counter, at)
        if term in self._live:
            self._unwritten.add(term)
        return True

    def begin(self, term: str, at: float) -> None:
        """A life was folded: it has its grace from here on if nothing was heard of it yet."""
        if term not in self._ended or term not in self._heard:
            self._unwritten.add(term)
        self._live.add(term)
        self._ended.discard(term)
        self._heard.setdefault(term, (0, at))

    def end(self, term: str) -> None:
        """A life is over."""
        self._heard.pop(term, None)
        self._live.discard(term)
        self._unwritten.discard(term)
        self._ended.add(term)

    def of(self, term: str) -> tuple[int, float] | None:
        """(counter, observed clock) of the last heartbeat, None if the term is not known."""
        return self._heard.get(term)

    def forget_unknown(self, clock: float) -> None:
        """Forget terms of no live record that were not heard for UNKNOWN_KEPT."""
        stray = [term for term, (_, at) in self._heard.items() if clock - at > UNKNOWN_KEPT and term not in self._live]
        for term in stray:
            del self._heard[term]

    def take_unwritten(self) -> tuple[list[Heard], list[str]]:
        """(heard, ended) since the last time, to be written down; give them back with `keep` if that fails.

        In the order of their terms, as a database keeps them: then each part of them touches pages of its own.
        """
        heard = [Heard(term, *self._heard[term]) for term in sorted(self._unwritten)]
        ended = list(self._ended)
        self._unwritten, self._ended = set(), set()
        return heard, ended

    def keep(self, heard: Iterable[Heard], ended: Iterable[str]) -> None:
        """What could not be written down is to be written the next time."""
        self._unwritten.update(life.term for life in heard if life.term in self._live)
        self._ended.update(term for term in ended if term not in self._live)
