"""Who is silent: what the gap since the last heartbeat means for a life. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from adsum.events.lifecycle import Silence
from adsum.events.names import Key

from .deadlines import Deadlines
from .hearing import Hearing
from .record import Record

__all__ = ["Finding", "Suspicion", "find", "judge", "next_look", "suspicions"]

Finding: TypeAlias = Literal["lapsed", "resumed", "expired"]


class Suspicion(NamedTuple):
    """What a life seems to be; said only after a last look at its heartbeats."""

    record: Record
    finding: Finding
    evidence: Silence


def find(record: Record, silent: float) -> Finding | None:
    """What a gap of `silent` seconds means for a record. It is stale before it expires, never gone straight away."""
    ttl = record.description.ttl
    if record.liveness == "up":
        return "lapsed" if silent > ttl else None
    if silent > 2 * ttl:
        return "expired"
    return "resumed" if silent <= ttl else None


def judge(record: Record, hearing: Hearing, clock: float) -> Suspicion | None:
    """What the gap of a record at `clock` (observed seconds) means, if that is anything new."""
    heard = hearing.of(record.term)
    if heard is None:
        return None
    counter, at = heard
    finding = find(record, clock - at)
    if finding is None:
        return None
    evidence = Silence(counter=counter, silent=round(clock - at, 3), ttl=record.description.ttl)
    return Suspicion(record, finding, evidence)


def suspicions(
    deadlines: Deadlines, records: Mapping[Key, Record], hearing: Hearing, clock: float
) -> Iterator[Suspicion]:
    """What is found of those who are due, who are put back to when something may be found of them."""
    for key in deadlines.take(clock):
        record = records.get(key)
        if record is None:
            continue
        deadlines.put(key, next_look(record, hearing, clock))
        suspicion = judge(record, hearing, clock)
        if suspicion is not None:
            yield suspicion


def next_look(record: Record, hearing: Hearing, clock: float) -> float:
    """The value of the clock up to which `judge` finds nothing, unless the record changes.

    A beat puts it off, but for one that is stale: that may resume at any tick.
    """
    heard = hearing.of(record.term)
    if heard is None or record.liveness != "up":
        return clock
    return heard[1] + record.description.ttl
