from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.events import subjects
from adsum.events.errors import InvalidValue, Undecodable
from adsum.events.names import Key, check_label
from tests.unit.test_ids import UUIDS_7
from tests.unit.test_names import LABELS

ROOT = Path(__file__).parents[2]
KEYS = st.builds(Key, LABELS, LABELS, LABELS)
KEY = Key("default", "orders", "a1")


def matches(pattern: str, subject: str) -> bool:
    """Whether the broker would take `subject` for one of `pattern`."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]+"), subject) is not None


def test_the_subjects_are_the_documented_ones() -> None:
    assert subjects.event(KEY) == "adsum.v1.default.event.orders.a1"
    assert subjects.beat(KEY, "t") == "adsum.v1.default.beat.orders.a1.t"
    assert subjects.topology(KEY) == "adsum.v1.default.topology.orders.a1"
    assert subjects.change(KEY) == "adsum.v1.default.change.orders.a1"
    assert subjects.namespace_mark("default") == "adsum.v1.default.mark"
    assert subjects.service_mark("default", "orders") == "adsum.v1.default.mark.orders"
    assert subjects.report(KEY) == "adsum.v1.default.report.orders.a1"
    assert subjects.ask("world", "default") == "adsum.v1.default.ask.world"
    assert subjects.TICK == "adsum.tick"
    documented = subjects.__doc__ or ""
    for kind in ("event", "beat", "topology", "change", "mark", "report", "ask"):
        assert f"adsum.v1.<namespace>.{kind}" in documented


@given(KEYS, UUIDS_7)
def test_what_was_built_is_taken_apart(key: Key, term: str) -> None:
    beat = subjects.beat(key, term)
    for subject in (subjects.event(key), subjects.topology(key), subjects.change(key), subjects.report(key), beat):
        assert subjects.key_of(subject) == key
    assert subjects.beat_term(beat) == term
    assert subjects.service_of_mark(subjects.service_mark(key.namespace, key.service)) == key.service


@given(KEYS, UUIDS_7)
def test_filters_take_their_own_and_no_other(key: Key, term: str) -> None:
    built = {
        subjects.ALL_EVENTS: subjects.event(key),
        subjects.ALL_BEATS: subjects.beat(key, term),
        subjects.ALL_TOPOLOGY: subjects.topology(key),
        subjects.changes(): subjects.change(key),
        subjects.ALL_REPORTS: subjects.report(key),
        subjects.service_mark("*"): subjects.service_mark(key.namespace, key.service),
        subjects.namespace_mark("*"): subjects.namespace_mark(key.namespace),
        subjects.asks("world"): subjects.ask("world", key.namespace),
        subjects.asks("mark"): subjects.ask("mark"),
        subjects.TICK: subjects.TICK,
    }
    for pattern in built:
        assert [other for other, subject in built.items() if matches(pattern, subject)] == [pattern]


def test_filters_by_namespace_service_and_instance() -> None:
    assert subjects.events("default", "orders", "a1") == subjects.event(KEY)
    assert subjects.events() == subjects.ALL_EVENTS
    assert subjects.topologies() == subjects.ALL_TOPOLOGY == subjects.REPUBLISH_FROM
    assert matches(subjects.events("default", "orders"), subjects.event(KEY))
    assert not matches(subjects.events("other"), subjects.event(KEY))
    assert matches(subjects.topologies("default", "orders"), subjects.topology(KEY))
    assert not matches(subjects.topologies("default", "other"), subjects.topology(KEY))
    assert matches(subjects.changes("default"), subjects.change(KEY))
    assert not matches(subjects.changes("default", "other"), subjects.change(KEY))


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "adsum.tick",
        "adsum.v1.default.mark",
        "adsum.v1.default.mark.orders",
        "adsum.v1.default.rumour.orders.a1",
        "adsum.v1.default.event.orders",
        "adsum.v1.default.event.orders.a1.more",
        "adsum.v1.default.beat.orders.a1",
        "adsum.v1.default.beat.orders.a1.t.more",
        "adsum.v2.default.event.orders.a1",
        "other.v1.default.event.orders.a1",
    ],
)
def test_other_subjects_name_no_instance(subject: str) -> None:
    with pytest.raises(Undecodable, match="names no instance"):
        subjects.key_of(subject)


def test_no_other_module_spells_a_subject() -> None:
    """In code; in texts for people a module may name them."""
    spelled = re.compile(r"""["'](adsum\.(v1|tick)|\{[^}]*\}\.(event|beat|topology|change|mark)\.)""")
    found = [
        str(path.relative_to(ROOT))
        for folder in ("events", "projector", "clients")
        for path in (ROOT / folder).rglob("*.py")
        if spelled.search(path.read_text()) and path != ROOT / "events" / "subjects.py"
    ]
    assert found == []


@given(LABELS)
def test_a_question_names_its_namespace_and_all_of_them_are_none(namespace: str) -> None:
    assert subjects.namespace_of_ask(subjects.ask("world", namespace)) == namespace
    assert subjects.namespace_of_ask(subjects.ask("world")) == ""
    every = subjects.ask("world").split(".")[2]
    with pytest.raises(InvalidValue):
        check_label("namespace", every)
