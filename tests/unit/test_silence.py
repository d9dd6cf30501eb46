"""Who is silent, for every gap and every state of a record."""

from __future__ import annotations

import pytest

from adsum.projector.catalog import Heard
from adsum.projector.hearing import Hearing
from adsum.projector.silence import Finding, find, judge
from tests.making import record


@pytest.mark.parametrize(
    ("liveness", "silent", "finding"),
    [
        ("up", 0.0, None),
        ("up", 15.0, None),
        ("up", 15.1, "lapsed"),
        ("up", 31.0, "lapsed"),
        ("stale", 0.0, "resumed"),
        ("stale", 15.0, "resumed"),
        ("stale", 15.1, None),
        ("stale", 30.0, None),
        ("stale", 30.1, "expired"),
    ],
)
def test_find(liveness: str, silent: float, finding: Finding | None) -> None:
    assert find(record(ttl=15.0, liveness=liveness), silent) == finding


def test_the_evidence_tells_counter_gap_and_ttl() -> None:
    silent = record(ttl=15.0)
    suspicion = judge(silent, Hearing([Heard(silent.term, 7, 100.0)]), clock=116.5)
    assert suspicion is not None
    assert suspicion.finding == "lapsed"
    assert (suspicion.evidence.counter, suspicion.evidence.silent, suspicion.evidence.ttl) == (7, 16.5, 15.0)


def test_a_life_nothing_is_known_of_is_not_judged() -> None:
    assert judge(record(), Hearing(), clock=1e9) is None


def test_each_life_is_judged_by_its_own_ttl() -> None:
    quick, slow = record(ttl=3.0), record(ttl=300.0)
    hearing = Hearing([Heard(quick.term, 1, 0.0), Heard(slow.term, 1, 0.0)])
    assert [one for one in (quick, slow) if judge(one, hearing, clock=10.0)] == [quick]
