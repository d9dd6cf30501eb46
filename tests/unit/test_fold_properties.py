"""The fold of whole logs: any log, cut into any batches, with anything redelivered and anything unreadable in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from adsum.events import codec, subjects
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
from adsum.projector.fold import Batch, Rejected, Version, fold_batch, read_entry
from adsum.projector.record import Record
from tests.unit.samples import DESCRIPTION, OWNER, SILENCE

KEYS = [Key("default", "orders", "a1"), Key("default", "orders", "b2")]
TERMS = ["term-1", "term-2"]
JUNK = [b"", b"junk", b'{"type":"promoted","id":"x","term":"y","by":{"kind":"z"}}', b'{"type":"lapsed"}']


class Said(NamedTuple):
    """A message before it has a sequence and its event an id."""

    key: Key
    term: str
    kind: type[Event] | bytes


SAID = st.builds(
    Said,
    st.sampled_from(KEYS),
    st.sampled_from(TERMS),
    st.sampled_from([Registered, Updated, HealthChanged, ModeChanged, Lapsed, Resumed, Expired, Deregistered, *JUNK]),
)
LOGS = st.lists(SAID, min_size=1, max_size=30).map(lambda said: log_of(said))
CUTS = st.lists(st.integers(1, 29), max_size=5)


def log_of(said: Sequence[Said]) -> list[Message]:
    """Sequences go up by ten, so that something can be put between."""
    return [
        Message(subjects.event(one.key), _bytes(one, 10 * place), 10 * place, 1000.0 + place)
        for place, one in enumerate(said, start=1)
    ]


def _bytes(said: Said, sequence: int) -> bytes:
    if isinstance(said.kind, bytes):
        return said.kind
    given: dict[str, object] = {"id": f"event-{sequence}", "term": said.term, "by": OWNER}
    if said.kind is Registered:
        given |= {"id": said.term, "instance": DESCRIPTION}
    elif said.kind is Updated:
        given |= {"instance": msgspec.structs.replace(DESCRIPTION, version=str(sequence))}
    elif said.kind is HealthChanged:
        given |= {"health": "critical" if sequence % 20 else "passing", "reason": str(sequence)}
    elif said.kind is ModeChanged:
        given |= {"mode": "draining" if sequence % 20 else "serving"}
    elif said.kind in (Lapsed, Resumed, Expired):
        given |= {"evidence": SILENCE}
    return codec.encode(said.kind(**given))  # type: ignore[arg-type]


class State:
    """What a catalog would hold."""

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.folded: set[str] = set()
        self.versions: list[Version] = []
        self.rejected: list[Rejected] = []

    def store(self, messages: Sequence[Message]) -> Batch:
        batch = fold_batch(self.records, messages, self.folded)
        for key, record in batch.changed.items():
            if record is None:
                self.records.pop(key, None)
            else:
                self.records[key] = record
        self.folded |= {entry.event.id for entry in batch.entries}
        self.versions += batch.versions
        self.rejected += batch.rejected
        return batch


def folded(log: Sequence[Message], cuts: Sequence[int] = ()) -> State:
    state = State()
    edges = [0, *sorted({cut for cut in cuts if cut < len(log)}), len(log)]
    for begin, end in pairwise(edges):
        state.store(log[begin:end])
    return state


@given(LOGS, CUTS)
def test_any_batching_gives_what_one_by_one_gives(log: list[Message], cuts: list[int]) -> None:
    one_by_one, batched = folded(log, range(1, len(log))), folded(log, cuts)
    assert batched.records == one_by_one.records
    assert batched.versions == one_by_one.versions
    assert batched.rejected == one_by_one.rejected
    assert batched.folded == one_by_one.folded


def test_what_ended_in_a_batch_is_gone_for_the_rest_of_it() -> None:
    log = log_of([Said(KEYS[0], TERMS[0], kind) for kind in (Registered, Expired, Lapsed, Updated)])
    for cut in range(1, 4):
        assert folded(log, [cut]).records == {}


@given(LOGS, st.data())
def test_what_is_redelivered_changes_nothing_but_last(log: list[Message], data: st.DataObject) -> None:
    again = list(log)
    for _ in range(data.draw(st.integers(1, 5))):
        first = data.draw(st.integers(0, len(log) - 1))
        copied = log[first]
        sequence = data.draw(st.sampled_from([message.sequence for message in log[first:]])) + data.draw(
            st.integers(1, 9)
        )
        if all(message.sequence != sequence for message in again):
            again.append(copied._replace(sequence=sequence))
    again.sort(key=lambda message: message.sequence)
    before, after = folded(log), folded(again, data.draw(CUTS))
    assert {key: _without_last(record) for key, record in after.records.items()} == {
        key: _without_last(record) for key, record in before.records.items()
    }
    assert [_without_record(version) for version in after.versions] == [
        _without_record(version) for version in before.versions
    ]


def _without_last(record: Record) -> Record:
    return msgspec.structs.replace(record, last=0)


def _without_record(version: Version) -> tuple[object, ...]:
    return (*version[:5], version.after and _without_last(version.after))


@given(LOGS)
def test_the_whole_log_again_changes_nothing(log: list[Message]) -> None:
    state = folded(log)
    records, versions = dict(state.records), len(state.versions)
    later = [message._replace(sequence=message.sequence + 10_000) for message in log]
    batch = state.store(later)
    assert not batch.versions
    assert len(state.versions) == versions
    assert {key: _without_last(record) for key, record in state.records.items()} == {
        key: _without_last(record) for key, record in records.items()
    }


@given(LOGS, CUTS)
def test_last_is_the_last_message_of_the_subject(log: list[Message], cuts: list[int]) -> None:
    for key, record in folded(log, cuts).records.items():
        said = [message.sequence for message in log if message.subject == subjects.event(key)]
        assert record.last == said[-1]
        assert record.revision <= record.last


@given(LOGS)
def test_who_is_there_is_the_last_to_register_unless_its_own_life_ended(log: list[Message]) -> None:
    state = folded(log)
    rejected = {one.message.sequence for one in state.rejected}
    events = [
        (entry.key, entry.event)
        for entry in map(read_entry, (message for message in log if message.sequence not in rejected))
        if not isinstance(entry, Rejected)
    ]
    for key in KEYS:
        said = [event for of, event in events if of == key]
        begun = [place for place, event in enumerate(said) if isinstance(event, Registered)]
        term = said[begun[-1]].term if begun else None
        ended = begun and any(
            isinstance(event, Deregistered | Expired) and event.term == term for event in said[begun[-1] :]
        )
        there = state.records.get(key)
        assert (there.term if there else None) == (None if ended else term)


@given(LOGS)
def test_every_message_is_an_entry_or_rejected_and_revisions_grow(log: list[Message]) -> None:
    batch = fold_batch({}, log)
    told = [entry.message for entry in batch.entries] + [rejected.message for rejected in batch.rejected]
    assert sorted(told, key=lambda message: message.sequence) == log
    assert batch.last == log[-1]
    for key in KEYS:
        versions = [version for version in batch.versions if version.key == key]
        steps = [version.sequence for version in versions]
        assert steps == sorted(set(steps))
        assert all(version.after is None or version.after.revision == version.sequence for version in versions)


@given(LOGS)
def test_the_history_tells_the_present(log: list[Message]) -> None:
    state = folded(log)
    latest: dict[Key, Record | None] = {}
    for version in state.versions:
        latest[version.key] = version.after
    present = {key: record for key, record in latest.items() if record is not None}
    assert {key: _without_last(record) for key, record in state.records.items()} == {
        key: _without_last(record) for key, record in present.items()
    }


@given(st.lists(st.tuples(st.text() | st.just(subjects.event(KEYS[0])), st.binary()), min_size=1, max_size=5))
def test_nothing_stops_it(anything: list[tuple[str, bytes]]) -> None:
    log = [Message(subject, data, place, 0.0) for place, (subject, data) in enumerate(anything, start=1)]
    batch = fold_batch({}, log)
    assert len(batch.rejected) == len(log)
    assert batch.last == log[-1]
    assert batch.last_id
