"""Who is silent: what the gap since the last heartbeat means for a life. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from adsum.events.lifecycle import Silence

from .hearing import Hearing
from .record import Record

__all__ = ["Finding", "Suspicion", "find", "judge"]

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


def judge(records: Iterable[Record], hearing: Hearing, clock: float) -> Iterator[Suspicion]:
    """Every record whose gap at `clock` (observed seconds) means something new."""
    for record in records:
        heard = hearing.of(record.term)
        if heard is None:
            continue
        counter, at = heard
        finding = find(record, clock - at)
        if finding is not None:
            evidence = Silence(counter=counter, silent=round(clock - at, 3), ttl=record.description.ttl)
            yield Suspicion(record, finding, evidence)
