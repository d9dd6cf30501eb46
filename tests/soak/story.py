"""The log, folded anew from what the design promises. Imports nothing of the product: two folds that agree are proof.

A life is begun by its `registered` and by nothing else; every other event acts only on the life (term) it names; the
later `registered` of an id wins; an event id that was folded before changes nothing. The revision of a state is the
sequence of the event that last changed something.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.soak.history import Row

__all__ = ["Log", "Said", "State", "Story", "tell"]

ENDS = ("expired", "deregistered")


class Said(NamedTuple):
    """An event of the log."""

    sequence: int
    time: float
    key: str
    type: str
    id: str
    term: str
    body: dict[str, Any]


class State(NamedTuple):
    """An instance while it is there."""

    term: str
    description: dict[str, Any]
    liveness: str
    health: str
    mode: str
    reason: str


class Story:
    """What became of one instance: the state from each revision on, None where it is gone. A position is a sequence
    of the log; before the first revision nobody is there."""

    def __init__(self) -> None:
        self.revisions: list[int] = []
        self.states: list[State | None] = []

    def add(self, revision: int, state: State | None) -> None:
        """From `revision` on it is so."""
        self.revisions.append(revision)
        self.states.append(state)

    def at(self, position: int) -> State | None:
        """Its state once the log was read up to `position`."""
        index = bisect_right(self.revisions, position)
        return self.states[index - 1] if index else None

    def revision_at(self, position: int) -> int:
        """The revision of that state, 0 for none."""
        index = bisect_right(self.revisions, position)
        return self.revisions[index - 1] if index else 0

    def begun_at(self, revision: int) -> State | None:
        """The state that began at just this revision; None if there is none."""
        index = bisect_right(self.revisions, revision) - 1
        return self.states[index] if index >= 0 and self.revisions[index] == revision else None

    def next_after(self, position: int) -> float:
        """The next revision above a position, infinity if there is none."""
        index = bisect_right(self.revisions, position)
        return self.revisions[index] if index < len(self.revisions) else float("inf")

    def absent_within(self, low: int, high: int) -> int | None:
        """The first position from `low` to `high` where it is not there; None if it is there all the while."""
        if self.at(low) is None:
            return low
        for revision, state in zip(self.revisions, self.states, strict=True):
            if low < revision <= high and state is None:
                return revision
        return None


class Log(NamedTuple):
    """The events in their order, the stories they make, and what is wrong with the log by itself."""

    events: list[Said]
    stories: dict[str, Story]
    broken: list[str]

    def present(self, position: int) -> dict[str, tuple[int, State]]:
        """(revision, state) of everybody who is there at a position."""
        found = ((key, story.revision_at(position), story.at(position)) for key, story in self.stories.items())
        return {key: (revision, state) for key, revision, state in found if state is not None}


def tell(rows: Iterable[Row]) -> Log:
    """Fold the log."""
    log = Log([], {}, [])
    seen: dict[str, int] = {}
    last = 0
    for row in rows:
        if row.sequence != last + 1:
            log.broken.append(f"after sequence {last} the log holds {row.sequence}")
        last = row.sequence
        said = _read(row)
        if said is None:
            log.broken.append(f"{row.sequence} cannot be read: {row.subject} {row.data[:100]}")
            continue
        log.events.append(said)
        if said.id in seen:
            log.broken.append(f"{said.sequence} is event {said.id} of {said.key} again, first at {seen[said.id]}")
            continue
        seen[said.id] = said.sequence
        story = log.stories.setdefault(said.key, Story())
        before = story.at(said.sequence)
        after = _fold(before, said)
        if after != before or (said.type == "registered"):
            story.add(said.sequence, after)
    return log


def _read(row: Row) -> Said | None:
    tokens = row.subject.split(".")
    try:
        body = json.loads(row.data)
        _adsum, _v1, namespace, kind, service, id = tokens
        if kind != "event":
            return None
        key = f"{namespace}/{service}/{id}"
        return Said(row.sequence, row.time, key, body["type"], body["id"], body["term"], body)
    except (ValueError, KeyError, TypeError):
        return None


def _fold(state: State | None, said: Said) -> State | None:
    body = said.body
    if said.type == "registered":
        health, mode = body.get("health", "passing"), body.get("mode", "serving")
        return State(said.term, body["instance"], "up", health, mode, "")
    if state is None or said.term != state.term:
        return state
    if said.type in ENDS:
        return None
    match said.type:
        case "updated":
            return state._replace(description=body["instance"])
        case "health-changed":
            return state._replace(health=body["health"], reason=body.get("reason", ""))
        case "mode-changed":
            return state._replace(mode=body["mode"], reason=body.get("reason", ""))
        case "lapsed":
            return state._replace(liveness="stale")
        case "resumed":
            return state._replace(liveness="up")
    return state
