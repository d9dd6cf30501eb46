"""Nobody is looked at in vain, and nobody is overlooked: held against looking at everybody with every tick."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as some

from adsum.events.names import Key
from adsum.projector.deadlines import Deadlines
from adsum.projector.hearing import Hearing
from adsum.projector.record import Record
from adsum.projector.silence import judge, suspicions
from tests.making import key, record

NAMES = [key("a"), key("b"), key("c")]


class Watched:
    """Records, what was heard of them, and who is due, as the reaper keeps them."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.hearing = Hearing()
        self.deadlines = Deadlines(())
        self.clock, self.counter = 0.0, 0

    def change(self, name: Key, ttl: float, liveness: str, anew: bool) -> None:
        """Something was said of it: it is there, or another life of it."""
        before = self.records.get(name)
        term = before.term if before is not None and not anew else f"term-{self.clock}-{self.counter}"
        if before is not None and before.term != term:
            self.hearing.end(before.term)
        self.records[name] = msgspec.structs.replace(record(name, ttl=ttl, liveness=liveness), term=term)
        self.hearing.begin(term, self.clock)
        self.deadlines.put(name, 0.0)

    def leave(self, name: Key) -> None:
        """Its life is over."""
        gone = self.records.pop(name, None)
        if gone is not None:
            self.hearing.end(gone.term)
        self.deadlines.put(name, 0.0)

    def beat(self, name: Key) -> None:
        """It is heard."""
        self.counter += 1
        if name in self.records:
            self.hearing.hear(self.records[name].term, self.counter, self.clock)

    def restart(self) -> None:
        """Another daemon goes on from what was written down: its clock stands a little before what was heard last."""
        self.clock = max(0.0, self.clock - 1.5)
        self.deadlines = Deadlines(self.records)

    def found(self) -> set[Key]:
        """Whom looking at those who are due found."""
        found = suspicions(self.deadlines, self.records, self.hearing, self.clock)
        return {suspicion.record.key for suspicion in found}


names = some.sampled_from(NAMES)
changes = some.tuples(
    some.just("change"), names, some.sampled_from([1.0, 2.5, 15.0]), some.sampled_from(["up", "stale"]), some.booleans()
)
ticks = some.tuples(some.just("tick"), some.sampled_from([0.4, 1.0, 3.0]))
steps = some.one_of(
    changes,
    some.tuples(some.just("leave"), names),
    some.tuples(some.just("beat"), names),
    some.tuples(some.just("restart")),
    *[ticks] * 4,
)


@given(some.lists(steps, min_size=20, max_size=60))
def test_all_are_found_whom_looking_at_everybody_would_find(steps: list[tuple[object, ...]]) -> None:
    watched = Watched()
    for what, *rest in steps:
        if what != "tick":
            getattr(watched, str(what))(*rest)
            continue
        watched.clock += float(str(rest[0]))
        everybody = {name for name, one in watched.records.items() if judge(one, watched.hearing, watched.clock)}
        assert watched.found() == everybody


def test_who_beats_is_looked_at_once_a_ttl() -> None:
    """Not with each tick: that is what all this is for."""
    watched, looks = Watched(), 0
    watched.change(NAMES[0], 15.0, "up", anew=True)
    for _ in range(150):
        watched.clock += 1.0
        watched.beat(NAMES[0])
        due = watched.deadlines.take(watched.clock)
        looks += len(due)
        for name in due:
            watched.deadlines.put(name, watched.clock)
            assert not watched.found()
    assert 9 <= looks <= 12


def test_who_is_due_for_longest_comes_first() -> None:
    deadlines = Deadlines([NAMES[2]])
    deadlines.put(NAMES[1], 3.2)
    deadlines.put(NAMES[0], 2.9)
    deadlines.put(NAMES[2], 4.0)
    assert deadlines.take(3.0) == [NAMES[0], NAMES[1]]
    assert deadlines.take(3.9) == []
    assert deadlines.take(99.0) == [NAMES[2]]
