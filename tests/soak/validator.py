"""The check at the end of a soak: holds what the processes recorded against the log. Imports nothing of the product.

python -m tests.soak.validator FOLDER

lost       1  every acknowledged event is in the log, once, at its sequence; the log has no gap and invents nobody
verdict    2  nobody was called silent whose heartbeats were stored in time
backwards  3  at each observer revisions only grow, and each state shown is the log's at that revision
set        4  no cache showed a set that the log never had, lacked who was announced, or called itself complete then
ghost      5  who died is gone in the end
unseen     5  who lives is there in the end, as it wants to be
diverged      in the end catalogs, topology and caches hold what the log holds
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.history import Fact, History, Run, read_history
from tests.soak.sight import Sight, visible
from tests.soak.story import Said, State, Story, tell

__all__ = ["CHECKS", "Finding", "Report", "row_of", "standing_of", "validate", "view_of"]

CHECKS = ("lost", "verdict", "backwards", "set", "ghost", "unseen", "diverged")
VERDICTS = {"lapsed": 1, "expired": 2}
LOOK = 3.0
"""Seconds by which a verdict may come after a beat that it does not know: it is published at most half a second after
the last look at the heartbeats, and what is not acknowledged within two more is given up."""
CLOCK = 0.1
"""Seconds by which two readings of the one clock of the machine may differ, rounding and scheduling included."""
UNFLUSHED = 5.0
"""Seconds before a crash of the broker within which it may lose what it did not flush: heartbeats and topology."""
LATE = 20.0
"""Seconds by which a mark may be late that proves a cache complete, in a network that holds things up."""


class Finding(NamedTuple):
    """Something that must not be: which check found it, at whom, and what."""

    check: str
    who: str
    what: str


class Report(NamedTuple):
    """What was checked, counted, and what was found."""

    counts: Counter[str]
    findings: list[Finding]


def validate(history: History) -> Report:
    """Check the record of a run."""
    check = _Check(history)
    check.acknowledged()
    check.verdicts()
    for run in history.of("watcher"):
        check.watched(run)
    for fact in history.facts("director", "settled"):
        check.settled(fact)
    return check.report


def row_of(revision: int, state: State) -> list[Any]:
    """What a catalog and the topology are compared by."""
    return [state.term, revision, state.liveness, state.health, state.mode]


def view_of(run: Run, until: float = float("inf")) -> tuple[str, dict[str, Fact]]:
    """What a watcher showed last before `until`: state and set."""
    state, shown = "loading", {}
    for fact in run.facts:
        if fact["fact"] == "view" and fact["at"] <= until:
            state = fact["state"]
            shown |= {f"{one['namespace']}/{one['service']}/{one['id']}": one for one in fact.get("shown", ())}
            for key in fact.get("gone", ()):
                shown.pop(key, None)
    return state, shown


def standing_of(run: Run, until: float = float("inf")) -> dict[str, Fact]:
    """What a service wanted said last before `until`, of each instance that it has."""
    found = {fact["key"]: fact for fact in run.facts if fact["fact"] == "standing" and fact["at"] <= until}
    return {key: fact for key, fact in found.items() if fact["state"] != "closed"}


class _Check:
    def __init__(self, history: History) -> None:
        self.history, self.log = history, tell(history.log)
        self.report = Report(Counter(), [])
        self._times: list[float] = []
        for row in history.log:  # not monotonic where the broker has several clocks
            self._times.append(max(row.time, self._times[-1] if self._times else row.time))
        self.crashes = sorted(fact["at"] for fact in history.facts("director", "crashed"))
        self.announced = sorted(
            (fact["stored"], fact["key"], fact["revision"])
            for fact in history.facts("observer", "announced")
            if not self._crashed(fact["stored"], fact["stored"] + UNFLUSHED)
        )
        self.report.counts["events"] = len(history.log)

    def find(self, check: str, who: str, what: str) -> None:
        self.report.findings.append(Finding(check, who, what))

    def head(self, time: float) -> int:
        """The end of the log at a time."""
        index = bisect_right(self._times, time + CLOCK)
        return self.history.log[index - 1].sequence if index else 0

    def _crashed(self, since: float, until: float) -> bool:
        return any(since <= crash <= until for crash in self.crashes)

    # ---- 1

    def acknowledged(self) -> None:
        for what in self.log.broken:
            self.find("lost", "log", what)
        by_id: dict[str, list[Said]] = {}
        by_key: dict[str, list[Said]] = {}
        for event in self.log.events:
            by_id.setdefault(event.id, []).append(event)
            by_key.setdefault(event.key, []).append(event)
        for run in self.history.of("service"):
            for fact in run.facts:
                if fact["fact"] == "stored":
                    self._stored(run, fact, by_id.get(fact["id"], []))
                elif fact["fact"] == "said":
                    self._said(run, fact, by_key.get(fact["key"], []))
        known = {fact["key"] for fact in self.history.facts("service", "registering")}
        for key in self.log.stories.keys() - known:
            self.find("lost", "log", f"{key} is in the log and nobody registered it")

    def _stored(self, run: Run, fact: Fact, found: list[Said]) -> None:
        """An event that the broker acknowledged is where it said."""
        self.report.counts["acknowledged"] += 1
        places = [(event.sequence, event.key) for event in found]
        if places != [(fact["sequence"], _key(fact["subject"]))]:
            what = (
                f"{fact['id']} of {fact['subject']} was acknowledged at {fact['sequence']}, the log has it at {places}"
            )
            self.find("lost", run.name, what)

    def _said(self, run: Run, fact: Fact, events: list[Said]) -> None:
        """A change that was acknowledged is there, once a life; one that a new life begins with is part of that."""
        self.report.counts["said"] += 1
        kind, value = fact["kind"], fact["value"]
        lives = Counter(event.term for event in events if event.type == kind and _value(event) == value)
        begins = any(event.type == "registered" and _value(event) == value for event in events)
        if (not lives and not begins) or any(times > 1 for times in lives.values()):
            self.find("lost", run.name, f"{kind} {value} of {fact['key']} was acknowledged and is there {dict(lives)}")

    # ---- 2

    def verdicts(self) -> None:
        beats: dict[str, dict[int, float]] = {}
        for fact in self.history.facts("observer", "beat"):
            self.report.counts["heartbeats"] += 1
            known = beats.setdefault(fact["term"], {})
            known[fact["counter"]] = min(fact["stored"], known.get(fact["counter"], fact["stored"]))
        begun = {event.term: event for event in self.log.events if event.type == "registered"}
        for event in self.log.events:
            if event.type in VERDICTS:
                self.report.counts[event.type] += 1
                self._verdict(event, beats.get(event.term, {}), begun.get(event.term))

    def _verdict(self, event: Said, beats: dict[int, float], begun: Said | None) -> None:
        evidence = event.body["evidence"]
        needed, counter = VERDICTS[event.type] * evidence["ttl"], evidence["counter"]
        who = f"{event.key} {event.type} at {event.sequence} (counter {counter})"
        if begun is None or begun.body["instance"]["ttl"] != evidence["ttl"]:
            self.find("verdict", who, f"no life of that term with a TTL of {evidence['ttl']} is in the log")
            return
        if evidence["silent"] < needed:  # it is rounded to milliseconds
            self.find("verdict", who, f"{evidence['silent']} s of silence are no reason, {needed} s would be")
        heard = max((stored for number, stored in beats.items() if number <= counter), default=begun.time)
        if counter in beats:
            self.report.counts["verdicts with their last beat on record"] += 1
        if event.time - heard < needed - CLOCK:
            self.find("verdict", who, f"came {event.time - heard:.3f} s after its last beat, {needed} s are needed")
        for number, stored in beats.items():
            if number > counter and stored < event.time - LOOK and not self._crashed(stored, event.time):
                self.find("verdict", who, f"beat {number} was stored {event.time - stored:.3f} s before")
                return

    # ---- 3 and 4

    def watched(self, run: Run) -> None:
        """Follow what one watcher showed from its start to its end."""
        who = f"{run.name}.{run.number}"
        following = _following(run)
        if following is None:
            return
        sight = Sight(self._seen_by(following), self.head, lambda check, what: self.find(check, who, what))
        due = iter(self.announced)
        waiting = self._floors(sight, due, following["at"])
        for fact in run.facts:
            if fact["fact"] == "change":
                sight.change(fact)
            elif fact["fact"] == "view":
                self.report.counts["views"] += 1
                self.report.counts["states shown"] += len(fact.get("shown", ()))
                sight.view(fact)
                while fact["state"] == "live" and waiting and waiting[0] < fact["at"] - fact["age"] - LATE:
                    sight.must_know(waiting[1], waiting[2], fact["at"])
                    waiting = next(due, None)

    def _floors(
        self, sight: Sight, due: Iterator[tuple[float, str, int]], until: float
    ) -> tuple[float, str, int] | None:
        """What was announced before an observer began to load it has to know; the first announcement after."""
        for announced in due:
            if announced[0] >= until:
                return announced
            sight.floor(announced[1], announced[2])
        return None

    def _seen_by(self, following: Fact) -> dict[str, Story]:
        return {key: story for key, story in self.log.stories.items() if visible(key, story, following)}

    # ---- 5 and the end

    def settled(self, fact: Fact) -> None:
        """Where everything had time to agree, it does."""
        self.report.counts["settled"] += 1
        present = self.log.present(fact["sequence"])
        for why in () if fact["converged"] else fact["why"]:
            self.find("diverged", "director", f"not within {fact['took']:.1f} s: {why}")
        expected = {key: row_of(*found) for key, found in present.items()}
        for name, held in {**fact["catalogs"], "topology": fact["topology"]}.items():
            for key in sorted(held.keys() | expected.keys()):
                if held.get(key) != expected.get(key):
                    self.find("diverged", name, f"{key} is {held.get(key)}, the log has {expected.get(key)}")
        self._held(fact, present)
        for run in self._last_runs("watcher", fact["at"]):
            self._cache(run, fact["at"], present)

    def _held(self, fact: Fact, present: dict[str, tuple[int, State]]) -> None:
        lost = {one["process"] for one in self.history.facts("director", "lost") if one["at"] <= fact["at"]}
        wanted: dict[str, Fact] = {}
        for run in self._last_runs("service", fact["at"]):
            if run.name not in lost:
                wanted |= standing_of(run, fact["at"])
        for key in present.keys() - wanted.keys():
            self.find("ghost", key, f"is there at {fact['sequence']} and no process has it")
        for key, standing in wanted.items():
            here = present.get(key)
            found = _standing(here[1]) if here is not None else None
            told = [standing[name] for name in ("state", "term", "value", "health", "mode")]
            if found != told:
                self.find("unseen", key, f"wants to be {told}, the log has {found}")

    def _cache(self, run: Run, at: float, present: dict[str, tuple[int, State]]) -> None:
        following = _following(run)
        if following is None:
            self.find("diverged", run.name, "had not begun to follow")
            return
        state, shown = view_of(run, at)
        if state != "live":
            self.find("diverged", run.name, f"is {state}")
        seen = self._seen_by(following)
        expected = {key: revision for key, (revision, _) in present.items() if key in seen}
        held = {key: one["revision"] for key, one in shown.items()}
        told = Sight({}, self.head, lambda check, what: None)
        for fact in run.facts:
            if fact["fact"] == "change" and fact["at"] <= at:
                told.change(fact)
        for name, found in (("shows", held), ("was told of", told.told())):
            for key in sorted(found.keys() | expected.keys()):
                if found.get(key) != expected.get(key):
                    self.find(
                        "diverged", run.name, f"{name} {key} at {found.get(key)}, the log has {expected.get(key)}"
                    )

    def _last_runs(self, kind: str, at: float) -> list[Run]:
        """Of each process the last one that had begun by then."""
        last = {run.name: run for run in self.history.of(kind) if run.facts and run.facts[0]["at"] <= at}
        return list(last.values())


def _following(run: Run) -> Fact | None:
    """What a watcher follows; None where it was ended before it began."""
    return next((fact for fact in run.facts if fact["fact"] == "following"), None)


def _standing(state: State) -> list[Any]:
    registered = "registered" if state.liveness == "up" else state.liveness
    return [registered, state.term, state.description["metadata"].get("value"), state.health, state.mode]


def _key(subject: str) -> str:
    tokens = subject.split(".")
    return f"{tokens[2]}/{tokens[4]}/{tokens[5]}"


def _value(event: Said) -> object:
    """What makes a change unique: each value is said once by who makes it."""
    if event.type in ("registered", "updated"):
        return event.body["instance"].get("metadata", {}).get("value")
    return event.body.get("reason")


def main(folder: Path) -> int:
    """Check a folder and tell."""
    counts, findings = validate(read_history(folder))
    for name, count in counts.items():
        print(f"{name:40} {count:,}")
    for finding in findings:
        print(f"{finding.check}: {finding.who}: {finding.what}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
