"""What the last word on an instance means for the registration that owns it: tables of `life.judge` and its kin."""

from __future__ import annotations

import msgspec
import pytest

from adsum.clients.life import (
    Continue,
    Decision,
    Life,
    LookBack,
    Register,
    Standing,
    Withdraw,
    Yield,
    begin,
    begun_as,
    counts,
    judge,
    judge_behind,
    next_event,
    obey,
    overrules,
    speaks_for,
    standing_after,
)
from adsum.events.description import Endpoint, describe
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Event,
    Expired,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Silence,
    Updated,
)
from adsum.events.log import Word

OWNER, OPERATOR, REAPER = Author("owner", "me"), Author("operator", "ann"), Author("reaper")
DESCRIPTION = describe([Endpoint(host="h", port=1)])
SILENCE = Silence(counter=3, silent=16.0, ttl=15.0)
STANDING = Standing(description=DESCRIPTION)


def registered(term: str) -> Event:
    return Registered(id=term, term=term, by=OWNER, instance=DESCRIPTION)


def expired(term: str) -> Event:
    return Expired(id="x", term=term, by=REAPER, evidence=SILENCE)


def lapsed(term: str) -> Event:
    return Lapsed(id="l", term=term, by=REAPER, evidence=SILENCE)


def removed(term: str, by: Author = OPERATOR) -> Event:
    return Deregistered(id="d", term=term, by=by, reason="broken")


def word(sequence: int, event: Event | None) -> Word:
    return Word(sequence, 0.0, event)


GENERATED = Life().looked(None)
LOOKED = Life().looked(word(5, registered("other")))
LIVING = GENERATED.attempting("mine").begun_at("mine", 10)
AGAIN = LIVING.ended()
DOUBTFUL = LOOKED.attempting("mine").doubtful()


@pytest.mark.parametrize(
    ("life", "last", "decision"),
    [
        # a fresh start may take over from whoever is there
        (GENERATED, None, Register(0)),
        (LOOKED, word(5, registered("other")), Register(5)),
        (LOOKED, word(7, registered("third")), Register(7)),
        (LOOKED, word(7, removed("other")), Register(7)),
        (LOOKED, word(7, None), Register(7)),
        # one that may be in the log already yields to whoever came after its first look
        (DOUBTFUL, word(5, registered("other")), Register(5)),
        (DOUBTFUL, word(6, lapsed("other")), LookBack(5)),
        (DOUBTFUL, word(7, registered("third")), Yield("third")),
        (DOUBTFUL, word(7, expired("third")), LookBack(5)),
        (DOUBTFUL, word(6, registered("mine")), Continue("mine", 6)),
        (DOUBTFUL, word(8, lapsed("mine")), Continue("mine", 8)),
        (DOUBTFUL, word(8, expired("mine")), Register(8)),
        (DOUBTFUL, None, Register(0)),
        # a life that is lived
        (LIVING, word(10, registered("mine")), Continue("mine", 10)),
        (LIVING, word(12, lapsed("mine")), Continue("mine", 12)),
        (LIVING, word(12, expired("mine")), Register(12)),
        (LIVING, word(12, removed("mine")), Withdraw(OPERATOR, "broken")),
        (LIVING, word(12, removed("mine", OWNER)), Register(12)),
        (LIVING, word(12, None), LookBack(10)),
        (LIVING, word(12, registered("other")), Yield("other")),
        (LIVING, word(13, removed("other")), LookBack(10)),
        (LIVING, word(9, removed("other")), Register(9)),  # the log lost what it had acknowledged
        (LIVING, None, Register(0)),  # the log lost what it had acknowledged
        # after it expired
        (AGAIN, word(12, expired("mine")), Register(12)),
        (AGAIN, word(13, removed("mine")), Withdraw(OPERATOR, "broken")),
        (AGAIN, word(13, registered("other")), Yield("other")),
        (AGAIN, word(13, expired("other")), LookBack(10)),
        # an operator who names an earlier life of ours means us
        (AGAIN.attempting("second"), word(13, removed("mine")), Withdraw(OPERATOR, "broken")),
        (AGAIN.attempting("second").begun_at("second", 14), word(14, registered("second")), Continue("second", 14)),
        # in another log nothing said before stops it, but an operator's removal
        (LIVING.in_another_log().looked(word(3, registered("other"))), word(3, registered("other")), Register(3)),
        (LIVING.in_another_log().looked(word(9, expired("mine"))), word(9, expired("mine")), Register(9)),
        (LIVING.in_another_log().looked(word(9, registered("mine"))), word(9, registered("mine")), Register(9)),
        (
            LIVING.in_another_log().looked(word(9, removed("mine"))),
            word(9, removed("mine")),
            Withdraw(OPERATOR, "broken"),
        ),
        (LIVING.in_another_log().looked(None), word(2, registered("other")), Yield("other")),
    ],
)
def test_judge(life: Life, last: Word | None, decision: Decision | LookBack) -> None:
    assert judge(life, last) == decision


@pytest.mark.parametrize(
    ("life", "said", "decision"),
    [
        # strays alone change nothing
        (LIVING, [removed("other", OWNER)], Continue("mine", 11)),
        (LIVING, [None, lapsed("other"), None], Continue("mine", 13)),
        (DOUBTFUL, [expired("third")], Register(11)),
        (AGAIN, [None], Register(11)),
        # they hide what was said of us
        (LIVING, [lapsed("mine"), removed("other")], Continue("mine", 12)),
        (LIVING, [expired("mine"), removed("other")], Register(12)),
        (LIVING, [expired("mine"), None], Register(12)),
        (LIVING, [removed("mine"), removed("other"), None], Withdraw(OPERATOR, "broken")),
        (DOUBTFUL, [registered("mine"), lapsed("other")], Continue("mine", 12)),
        (AGAIN, [expired("mine"), expired("other")], Register(12)),
        # or that another life began
        (LIVING, [registered("other"), removed("other")], Yield("other")),
        (LIVING, [registered("other"), removed("third"), None], Yield("other")),
        (LIVING, [registered("other"), registered("third"), lapsed("other")], Yield("third")),
        (DOUBTFUL, [registered("third"), expired("third")], Yield("third")),
        (AGAIN, [expired("mine"), registered("other"), lapsed("other")], Yield("other")),
    ],
)
def test_what_strays_hide(life: Life, said: list[Event | None], decision: Decision) -> None:
    """`said` is what stands on the subject from sequence 11 on; the last of it is a stray."""
    words = [word(sequence, event) for sequence, event in enumerate(said, 11)]
    assert judge(life, words[-1]) == LookBack(life.since)
    counting = [word for word in words if counts(life, word.event)]
    assert judge_behind(life, counting[-1] if counting else None, words[-1].sequence) == decision


def test_only_the_first_look_in_a_log_counts() -> None:
    life = LOOKED.looked(word(9, registered("third")))
    assert life.look == 5
    assert life.in_another_log().looked(word(9, registered("third"))).look == 9


def test_what_is_unsaid_is_said_one_event_at_a_time_until_the_log_says_what_is_wanted() -> None:
    heavier = msgspec.structs.replace(DESCRIPTION, weight=2.0)
    wanted = Standing(
        description=heavier, health="warning", health_reason="slow", mode="draining", mode_reason="deploy"
    )
    said = begun_as(begin(STANDING, "mine", OWNER))
    assert said == STANDING
    kinds = []
    while (event := next_event(wanted, said, "mine", "id", OWNER)) is not None:
        kinds.append(type(event))
        said = standing_after(said, event)
    assert kinds == [Updated, HealthChanged, ModeChanged]
    assert said == wanted


def test_a_new_life_begins_with_health_and_mode_as_wanted_and_then_tells_the_reasons() -> None:
    wanted = Standing(description=DESCRIPTION, health="critical", health_reason="no disk")
    said = begun_as(begin(wanted, "mine", OWNER))
    assert said.health == "critical"
    assert isinstance(next_event(wanted, said, "mine", "id", OWNER), HealthChanged)


DRAINED = msgspec.structs.replace(STANDING, mode="draining", mode_reason="rack moves")
SICK = msgspec.structs.replace(STANDING, health="critical", health_reason="seen failing")
MAINTAINED = msgspec.structs.replace(STANDING, mode="maintenance")


@pytest.mark.parametrize(
    ("wanted", "said", "found", "then"),
    [
        (STANDING, STANDING, DRAINED, DRAINED),
        (STANDING, STANDING, SICK, SICK),
        (SICK, SICK, STANDING, STANDING),
        # a change of the owner's that is still to be said stands; what it does not touch is obeyed
        (MAINTAINED, STANDING, DRAINED, MAINTAINED),
        (MAINTAINED, STANDING, SICK, msgspec.structs.replace(SICK, mode="maintenance")),
        (STANDING, SICK, DRAINED, msgspec.structs.replace(DRAINED, health="passing")),
    ],
)
def test_what_an_operator_said_becomes_the_owners_will(
    wanted: Standing, said: Standing, found: Standing, then: Standing
) -> None:
    assert obey(wanted, said, found) == then


def test_only_operators_set_the_state_of_others() -> None:
    drained = {by: ModeChanged(id="m", term="mine", by=by, mode="draining") for by in (OWNER, OPERATOR, REAPER)}
    assert [by for by, event in drained.items() if speaks_for(event)] == [OPERATOR]
    assert not speaks_for(removed("mine"))


@pytest.mark.parametrize(
    ("kind", "said", "beside"),
    [
        ("prober", HealthChanged(id="h", term="t", by=Author("prober"), health="critical"), True),
        ("owner", HealthChanged(id="h", term="t", by=OWNER, health="critical"), False),
        ("operator", HealthChanged(id="h", term="t", by=OPERATOR, health="critical"), False),
        ("of the mode", ModeChanged(id="h", term="t", by=Author("prober"), mode="draining"), False),
    ],
)
def test_what_a_prober_found_is_nobodys_will(kind: str, said: Event, beside: bool) -> None:
    assert overrules(said) is beside, kind
    assert not (beside and speaks_for(said))
