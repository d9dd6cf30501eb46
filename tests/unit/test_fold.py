"""The fold of one event: what each event makes of each state."""

from __future__ import annotations

import re

import msgspec
import pytest

from adsum.events import codec, subjects
from adsum.events.description import Description, Endpoint
from adsum.events.lifecycle import (
    Deregistered,
    Event,
    Expired,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Resumed,
    Updated,
)
from adsum.events.names import Key
from adsum.events.reader import Message
from adsum.projector.fold import Entry, Rejected, fold, fold_batch, identify, read_entry, type_of
from adsum.projector.record import Record, departed, instance_of
from tests.unit.samples import DESCRIPTION, EPOCH, EVENTS, OPERATOR, OWNER, REAPER, SILENCE

KEY = Key("default", "orders", "a1")
TERM, LATER, LAST = (f"01970000-0000-7000-8000-00000000000{digit}" for digit in "159")
ID = "01970000-0000-7000-8000-0000000000ee"
OTHER = Description(endpoints=(Endpoint(host="10.0.0.8", port=1),))

UP = Record(key=KEY, term=LATER, revision=10, last=10, description=DESCRIPTION, registered_at=100.0, changed_at=100.0)
STALE = msgspec.structs.replace(UP, revision=12, last=12, liveness="stale", changed_at=112.0)
SICK = msgspec.structs.replace(UP, revision=11, last=13, health="critical", reason="disk full", changed_at=111.0)
DRAINING = msgspec.structs.replace(UP, revision=11, last=11, mode="draining", reason="bye", changed_at=111.0)
STATES = {"nobody": None, "up": UP, "stale": STALE, "sick": SICK, "draining": DRAINING}


def events(term: str) -> dict[str, Event]:
    return {
        "updated": Updated(id=ID, term=term, by=OWNER, instance=OTHER),
        "unchanged": Updated(id=ID, term=term, by=OWNER, instance=DESCRIPTION),
        "passing": HealthChanged(id=ID, term=term, by=OWNER, health="passing"),
        "critical": HealthChanged(id=ID, term=term, by=OWNER, health="critical", reason="disk full"),
        "still critical, other reason": HealthChanged(id=ID, term=term, by=OWNER, health="critical", reason="no net"),
        "serving": ModeChanged(id=ID, term=term, by=OPERATOR, mode="serving"),
        "draining": ModeChanged(id=ID, term=term, by=OPERATOR, mode="draining", reason="bye"),
        "maintenance": ModeChanged(id=ID, term=term, by=OPERATOR, mode="maintenance"),
        "lapsed": Lapsed(id=ID, term=term, by=REAPER, evidence=SILENCE),
        "resumed": Resumed(id=ID, term=term, by=REAPER, evidence=SILENCE),
        "expired": Expired(id=ID, term=term, by=REAPER, evidence=SILENCE),
        "deregistered": Deregistered(id=ID, term=term, by=OWNER, reason="moved"),
    }


UNCHANGED: dict[str, object] = {}
TABLE: list[tuple[str, str, dict[str, object] | None]] = [
    *[(state, "updated", {"description": OTHER}) for state in ("up", "stale", "sick", "draining")],
    *[(state, "unchanged", UNCHANGED) for state in ("up", "stale", "sick", "draining")],
    ("up", "passing", UNCHANGED),
    ("stale", "passing", UNCHANGED),
    ("sick", "passing", {"health": "passing", "reason": ""}),
    ("draining", "passing", {"reason": ""}),
    ("up", "critical", {"health": "critical", "reason": "disk full"}),
    ("stale", "critical", {"health": "critical", "reason": "disk full"}),
    ("sick", "critical", UNCHANGED),
    ("draining", "critical", {"health": "critical", "reason": "disk full"}),
    ("sick", "still critical, other reason", {"reason": "no net"}),
    ("up", "serving", UNCHANGED),
    ("stale", "serving", UNCHANGED),
    ("sick", "serving", {"reason": ""}),
    ("draining", "serving", {"mode": "serving", "reason": ""}),
    ("up", "draining", {"mode": "draining", "reason": "bye"}),
    ("stale", "draining", {"mode": "draining", "reason": "bye"}),
    ("sick", "draining", {"mode": "draining", "reason": "bye"}),
    ("draining", "draining", UNCHANGED),
    *[(state, "maintenance", {"mode": "maintenance", "reason": ""}) for state in ("up", "stale", "sick", "draining")],
    *[(state, "lapsed", {"liveness": "stale"}) for state in ("up", "sick", "draining")],
    ("stale", "lapsed", UNCHANGED),
    *[(state, "resumed", UNCHANGED) for state in ("up", "sick", "draining")],
    ("stale", "resumed", {"liveness": "up"}),
    *[(state, "expired", None) for state in ("up", "stale", "sick", "draining")],
    *[(state, "deregistered", None) for state in ("up", "stale", "sick", "draining")],
]


@pytest.mark.parametrize(("state", "event", "changes"), TABLE)
def test_an_event_of_this_life(state: str, event: str, changes: dict[str, object] | None) -> None:
    before = STATES[state]
    assert before is not None
    after = fold(before, KEY, events(LATER)[event], 20, 120.0)
    if changes is None:
        assert after is None
    elif changes is UNCHANGED:
        assert after == msgspec.structs.replace(before, last=20)
    else:
        assert after == msgspec.structs.replace(before, last=20, revision=20, changed_at=120.0, **changes)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", events(LATER))
@pytest.mark.parametrize("term", [TERM, LAST])
def test_an_event_of_another_life_has_no_effect(state: str, event: str, term: str) -> None:
    before = STATES[state]
    after = fold(before, KEY, events(term)[event], 20, 120.0)
    assert after == (None if before is None else msgspec.structs.replace(before, last=20))


@pytest.mark.parametrize("event", events(LATER))
def test_nothing_but_registered_begins_a_life(event: str) -> None:
    assert fold(None, KEY, events(LATER)[event], 20, 120.0) is None


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("term", [TERM, LATER, LAST])
def test_the_later_registered_wins_whatever_its_term_and_whoever_was_there(state: str, term: str) -> None:
    registered = Registered(id=term, term=term, by=OWNER, instance=OTHER, health="warning", mode="maintenance")
    assert fold(STATES[state], KEY, registered, 20, 120.0) == Record(
        key=KEY,
        term=term,
        revision=20,
        last=20,
        description=OTHER,
        health="warning",
        mode="maintenance",
        registered_at=120.0,
        changed_at=120.0,
    )


def test_the_table_has_every_event_and_every_state() -> None:
    assert {state for state, _, _ in TABLE} == set(STATES) - {"nobody"}
    assert {event for _, event, _ in TABLE} == set(events(LATER))
    kinds = {re.sub(r"-\d+$", "", name) for name in EVENTS}
    assert {type_of(event) for event in events(LATER).values()} | {"registered"} == kinds


# ---- what is no event to act on


def message(event: Event | bytes, sequence: int = 20, subject: str = subjects.event(KEY)) -> Message:
    return Message(subject, event if isinstance(event, bytes) else codec.encode(event), sequence, 100.0 + sequence)


def registered(term: str = LATER, **said: object) -> Registered:
    given = {"id": term, "term": term, "by": OWNER, "instance": DESCRIPTION} | said
    return msgspec.convert(given, Registered, from_attributes=True, strict=False)


def lived(**said: object) -> Registered:
    return registered(instance=msgspec.structs.replace(DESCRIPTION, **said))


def test_a_good_message_is_read() -> None:
    assert read_entry(message(EVENTS["updated"])) == Entry(KEY, EVENTS["updated"], message(EVENTS["updated"]))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (message(b"not json"), "malformed"),
        (message(b""), "truncated"),
        (message(b'{"type":"promoted"}'), "promoted"),
        (message(registered(id=TERM)), "must be the id of its registered event"),
        (message(lived(endpoints=())), "at least one endpoint"),
        (message(lived(ttl=0.0)), "ttl"),
        (message(lived(ttl=-1.0)), "ttl"),
        (message(lived(ttl=1500.5)), "ttl"),
        (message(Updated(id=ID, term=LATER, by=OWNER, instance=Description(endpoints=()))), "at least one endpoint"),
        (message(EVENTS["lapsed"], subject="adsum.v1.Default.event.orders.a1"), "namespace 'Default'"),
        (message(EVENTS["lapsed"], subject="adsum.v1.default.event.or_ders.a1"), "service 'or_ders'"),
        (message(EVENTS["lapsed"], subject="adsum.v1.default.event.orders.a--"), "instance id 'a--'"),
        (message(EVENTS["lapsed"], subject="adsum.v1.default.event.orders"), "names no instance"),
    ],
)
def test_a_message_to_reject(wrong: Message, reason: str) -> None:
    read = read_entry(wrong)
    assert isinstance(read, Rejected)
    assert reason in read.reason
    batch = fold_batch({}, [message(registered(TERM), 19), wrong, message(EVENTS["lapsed"], 21)])
    assert [rejected.message for rejected in batch.rejected] == [wrong]
    assert [version.cause for version in batch.versions] == ["registered", "lapsed"]
    assert batch.last.sequence == 21


def test_what_a_later_author_says_beyond_our_rules_is_kept() -> None:
    generous = lived(weight=-3.0, capabilities=("no name of ours",), metadata={"k": "x" * 10_000})
    assert isinstance(read_entry(message(generous)), Entry)


def test_a_message_is_identified_by_its_event_id_or_its_bytes() -> None:
    assert identify(message(EVENTS["lapsed"])) == EVENTS["lapsed"].id
    assert identify(message(b"junk")) == identify(message(b"junk", 99)) != identify(message(b"junk 2"))
    assert identify(message(b"junk")).startswith("sha256:")


def test_what_the_database_refused_is_rejected_with_its_reason_and_moves_last() -> None:
    batch = fold_batch({}, [message(registered(), 1), message(EVENTS["lapsed"], 2)], refused={2: "value too long"})
    assert batch.rejected == (Rejected(message(EVENTS["lapsed"], 2), "value too long", KEY),)
    record = batch.changed[KEY]
    assert record is not None
    assert (record.revision, record.last, record.liveness) == (1, 2, "up")
    assert batch.last_id == EVENTS["lapsed"].id


# ---- what is told of a record


def test_the_topology_message_of_a_record() -> None:
    told = instance_of(SICK, EPOCH)
    assert (told.key, told.epoch, told.revision, told.term) == (KEY, EPOCH, 11, LATER)
    assert (told.liveness, told.health, told.mode, told.reason) == ("up", "critical", "serving", "disk full")
    for field in msgspec.structs.fields(Description):
        assert getattr(told, field.name) == getattr(DESCRIPTION, field.name)


def test_the_tombstone_of_a_life() -> None:
    gone = departed(KEY, LATER, 20, "expired", EPOCH)
    assert (gone.key, gone.term, gone.revision, gone.reason, gone.epoch) == (KEY, LATER, 20, "expired", EPOCH)
