"""The validator by itself: a good history passes, and each kind of bad one is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.soak.history import Fact, History, Row, Run
from tests.soak.story import tell
from tests.soak.validator import validate

KEY = "default/orders/a"
SUBJECT = "adsum.v1.default.event.orders.a"
START = 1000.0
SILENCE = {"counter": 1, "silent": 4, "ttl": 3}
DESCRIPTION: Fact = {
    "endpoints": [{"name": "main", "host": "127.0.0.1", "port": 80, "protocol": "http"}],
    "capabilities": ["even"],
    "metadata": {"value": "v1"},
    "heartbeat": 1.0,
    "ttl": 3.0,
}


class Story:
    """A small run, told by hand: change what is to be wrong with it, then `found()`."""

    def __init__(self) -> None:
        self.log: list[Row] = []
        self.service: list[Fact] = []
        self.watcher: list[Fact] = [self.fact("following", -1, services=[], capability=None)]
        self.observer: list[Fact] = []
        self.director: list[Fact] = []

    def fact(self, fact: str, at: float, **fields: Any) -> Fact:
        """A fact at `at` seconds after the start."""
        return {"fact": fact, "at": START + at, **fields}

    def say(self, type: str, at: float, term: str = "t1", **body: Any) -> int:
        """An event in the log; its sequence."""
        id = body.pop("id", term if type == "registered" else f"e{len(self.log) + 1}")
        subject = body.pop("subject", SUBJECT)
        data = json.dumps({"type": type, "id": id, "term": term, **body})
        self.log.append(Row(len(self.log) + 1, START + at, subject, data))
        return len(self.log)

    def register(self, at: float, term: str = "t1", value: str = "v1") -> int:
        """A life begins, acknowledged."""
        description = {**DESCRIPTION, "metadata": {"value": value}}
        sequence = self.say("registered", at, term, instance=description, health="passing", mode="serving")
        self.service.append(self.fact("registering", at - 0.1, key=KEY))
        self.service.append(self.fact("stored", at, subject=SUBJECT, id=term, sequence=sequence))
        self.stand(at, term, value)
        return sequence

    def update(self, at: float, value: str, term: str = "t1") -> int:
        """It describes itself anew, acknowledged."""
        sequence = self.say("updated", at, term, instance={**DESCRIPTION, "metadata": {"value": value}})
        self.service.append(self.fact("stored", at, subject=SUBJECT, id=f"e{sequence}", sequence=sequence))
        self.service.append(self.fact("said", at, key=KEY, kind="updated", value=value))
        self.stand(at, term, value)
        return sequence

    def stand(self, at: float, term: str, value: str) -> None:
        """What the owner wants."""
        self.service.append(
            self.fact(
                "standing", at, key=KEY, state="registered", term=term, value=value, health="passing", mode="serving"
            )
        )

    def show(self, at: float, revision: int, state: str = "live", term: str = "t1", value: str = "v1") -> None:
        """The watcher shows it at a revision."""
        shown = {"namespace": "default", "service": "orders", "id": "a", "revision": revision, "term": term}
        shown |= {**DESCRIPTION, "metadata": {"value": value}}
        shown |= {"liveness": "up", "health": "passing", "mode": "serving", "reason": ""}
        known = [fact["after"] for fact in self.watcher if fact["fact"] == "change"]
        before = known[-1] if known else None
        self.watcher.append(self.fact("change", at, kind="any", key=KEY, before=before, after=revision))
        self.watcher.append(self.fact("view", at, state=state, age=0.0, shown=[shown]))

    def hide(self, at: float, state: str = "live") -> None:
        """The watcher shows it no more."""
        known = [fact["after"] for fact in self.watcher if fact["fact"] == "change"]
        self.watcher.append(self.fact("change", at, kind="left", key=KEY, before=known[-1], after=None))
        self.watcher.append(self.fact("view", at, state=state, age=0.0, gone=[KEY]))

    def look(self, at: float, state: str = "live", age: float = 0.0) -> None:
        """The watcher shows what it showed."""
        self.watcher.append(self.fact("view", at, state=state, age=age))

    def beat(self, at: float, counter: int, term: str = "t1") -> None:
        """A heartbeat was stored."""
        self.observer.append(self.fact("beat", at, term=term, counter=counter, stored=START + at))

    def announce(self, at: float, revision: int) -> None:
        """The topology told of a revision."""
        self.observer.append(self.fact("announced", at, key=KEY, revision=revision, stored=START + at))

    def verdict(self, type: str, at: float, counter: int, silent: float, ttl: float = 3.0) -> int:
        """The reaper speaks."""
        return self.say(type, at, evidence={"counter": counter, "silent": silent, "ttl": ttl})

    def settle(self, at: float, catalog: Fact | None = None, topology: Fact | None = None) -> None:
        """All agree, unless a catalog or the topology is given that does not."""
        here = tell(self.log).present(len(self.log))
        rows = {
            key: [state.term, revision, state.liveness, state.health, state.mode]
            for key, (revision, state) in here.items()
        }
        self.director.append(
            self.fact(
                "settled",
                at,
                converged=True,
                took=1.0,
                why=[],
                sequence=len(self.log),
                catalogs={"adsumd-0": rows if catalog is None else catalog},
                topology=rows if topology is None else topology,
            )
        )

    def found(self) -> set[str]:
        """The checks that found something."""
        runs = [
            Run("director", 1, self.director),
            Run("observer", 1, self.observer),
            Run("service-1", 1, self.service),
            Run("watcher-1", 1, self.watcher),
        ]
        return {finding.check for finding in validate(History(self.log, runs)).findings}


@pytest.fixture
def story() -> Story:
    """Registered at 1, updated at 2, both seen."""
    story = Story()
    story.register(1)
    story.show(1.1, 1)
    story.update(2, "v2")
    story.show(2.1, 2, value="v2")
    return story


def test_a_good_history_passes(story: Story) -> None:
    """Also with a lapse, an expiry after it, and another life."""
    story.beat(2, 1)
    story.verdict("lapsed", 5.5, 1, 3.2)
    story.verdict("expired", 8.5, 1, 6.2)
    story.hide(8.6)
    story.register(9, "t2", "v3")
    story.beat(9, 1, "t2")
    story.show(9.1, 5, term="t2", value="v3")
    story.settle(10)
    assert story.found() == set()


# ---- 1


def test_an_acknowledged_event_that_is_not_there_is_lost(story: Story) -> None:
    story.service.append(story.fact("stored", 3, subject=SUBJECT, id="e9", sequence=9))
    assert story.found() == {"lost"}


def test_an_acknowledged_event_at_another_sequence_is_lost(story: Story) -> None:
    story.service[-3]["sequence"] = 7
    assert story.found() == {"lost"}


def test_an_event_that_is_there_twice_is_told(story: Story) -> None:
    story.say("updated", 3, id="e2", instance=DESCRIPTION)
    assert story.found() == {"lost"}


def test_a_change_that_was_said_to_be_there_and_is_not_is_lost(story: Story) -> None:
    story.service.append(story.fact("said", 3, key=KEY, kind="updated", value="v9"))
    assert story.found() == {"lost"}


def test_a_gap_in_the_log_is_told(story: Story) -> None:
    story.log[1] = story.log[1]._replace(sequence=3)
    assert "lost" in story.found()


def test_who_is_in_the_log_and_never_registered_is_told(story: Story) -> None:
    story.say("registered", 3, "t9", subject="adsum.v1.default.event.orders.b", instance=DESCRIPTION)
    assert story.found() == {"lost"}


# ---- 2


@pytest.mark.parametrize(
    ("wrong", "tell"),
    [
        ("too early for its own evidence", lambda story: story.verdict("lapsed", 5.5, 1, 2.9)),
        ("too early after the beat it names", lambda story: story.verdict("lapsed", 4.5, 1, 3.1)),
        ("a later beat was there long before", lambda story: (story.beat(5, 2), story.verdict("lapsed", 8.5, 1, 3.1))),
        ("one TTL is not enough to be gone", lambda story: story.verdict("expired", 6.5, 1, 6.1)),
        ("a TTL that the life does not have", lambda story: story.verdict("lapsed", 9, 1, 5.1, ttl=2.0)),
        ("of a life that nobody began", lambda story: story.say("lapsed", 9, "t9", evidence=SILENCE)),
    ],
)
def test_a_verdict_without_its_reasons_is_found(story: Story, wrong: str, tell: Callable[[Story], object]) -> None:
    story.beat(2, 1)
    tell(story)
    assert story.found() == {"verdict"}, wrong


def test_a_beat_that_came_while_the_verdict_was_under_way_does_not_refute_it(story: Story) -> None:
    story.beat(2, 1)
    story.beat(6, 2)
    story.verdict("lapsed", 7, 1, 3.5)
    assert story.found() == set()


def test_a_silence_that_is_rounded_down_to_the_ttl_is_a_reason(story: Story) -> None:
    story.beat(2, 1)
    story.verdict("lapsed", 5.5, 1, 3.0)
    assert story.found() == set()


def test_a_beat_that_a_crash_may_have_taken_does_not_refute_a_verdict(story: Story) -> None:
    story.beat(2, 1)
    story.beat(5, 2)
    story.director.append(story.fact("crashed", 5.1, target="broker"))
    story.verdict("lapsed", 9, 1, 3.5)
    assert story.found() == set()


# ---- 3


def test_a_revision_that_goes_backwards_is_found(story: Story) -> None:
    story.show(3, 1)
    assert story.found() == {"backwards"}


def test_a_state_that_is_not_the_logs_is_found(story: Story) -> None:
    story.update(3, "v3")
    story.show(3.1, 3, value="v2")
    assert story.found() == {"backwards"}


def test_a_change_that_does_not_follow_on_the_last_one_is_found(story: Story) -> None:
    story.watcher.append(story.fact("change", 3, kind="changed", key=KEY, before=1, after=2))
    assert story.found() == {"backwards"}


def test_who_comes_back_from_the_dead_is_found(story: Story) -> None:
    story.say("deregistered", 3)
    story.hide(3.1)
    story.show(4, 2, value="v2")
    assert story.found() == {"backwards"}


# ---- 4


def test_a_revision_that_the_log_never_had_is_found(story: Story) -> None:
    story.say("lapsed", 1.5, "t9", evidence=SILENCE)
    story.show(3, 3, value="v2")
    assert "set" in story.found()


def test_a_state_that_is_shown_before_it_was_stored_is_found(story: Story) -> None:
    story.update(5, "v3")
    story.show(4, 3, value="v3")
    assert story.found() == {"set"}


def test_who_is_missing_and_never_left_is_found(story: Story) -> None:
    story.hide(3)
    assert story.found() == {"set"}


def test_who_is_missing_in_the_first_set_and_was_announced_before_is_found() -> None:
    story = Story()
    story.register(-3)
    story.announce(-2, 1)
    story.look(0)
    assert story.found() == {"set"}


def test_who_is_missing_in_the_first_set_and_was_not_announced_yet_is_no_fault() -> None:
    story = Story()
    story.register(-3)
    story.look(0)
    story.announce(1, 1)
    assert story.found() == set()


@pytest.mark.parametrize(("state", "found"), [("live", {"set"}), ("stale", set())])
def test_a_cache_that_calls_itself_complete_and_lacks_what_was_announced_is_found(
    story: Story, state: str, found: set[str]
) -> None:
    story.update(3, "v3")
    story.announce(3.1, 3)
    story.look(40, state)
    assert story.found() == found


def test_a_set_that_is_shown_while_loading_is_found(story: Story) -> None:
    story.look(3, "loading")
    assert story.found() == {"set"}


# ---- 5 and the end


def test_the_dead_who_are_still_there_are_found(story: Story) -> None:
    story.director.append(story.fact("lost", 3, process="service-1"))
    story.settle(60)
    assert story.found() == {"ghost"}


def test_the_living_who_are_not_there_are_found(story: Story) -> None:
    story.say("deregistered", 3)
    story.hide(3.1)
    story.settle(60)
    assert story.found() == {"unseen"}


def test_the_living_whose_last_word_is_not_there_are_found(story: Story) -> None:
    story.stand(3, "t1", "v9")
    story.settle(60)
    assert story.found() == {"unseen"}


@pytest.mark.parametrize("part", ["catalog", "topology"])
def test_a_catalog_or_topology_that_holds_something_else_is_found(story: Story, part: str) -> None:
    story.settle(60, **{part: {KEY: ["t1", 1, "up", "passing", "serving"]}})
    assert story.found() == {"diverged"}


def test_a_cache_that_holds_something_else_in_the_end_is_found(story: Story) -> None:
    story.update(3, "v3")
    story.settle(10)
    assert story.found() == {"diverged"}


def test_a_cache_that_does_not_call_itself_live_in_the_end_is_found(story: Story) -> None:
    story.look(9, "stale")
    story.settle(10)
    assert story.found() == {"diverged"}


def test_what_did_not_agree_in_time_is_told(story: Story) -> None:
    story.settle(10)
    story.director[-1] |= {"converged": False, "why": ["watcher-1 is stale"]}
    assert story.found() == {"diverged"}
