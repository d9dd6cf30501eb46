"""Messages that are none: made by Hypothesis, and by hand where chance would not find them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from adsum.events import subjects
from adsum.events.codec import encode
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered
from adsum.events.names import Key
from adsum.events.signals import Heartbeat
from tests.making import OWNER, key, registered

__all__ = ["GHOST", "anything", "bad_events", "future_events"]

GHOST = key("ghost")
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def anything(count: int) -> list[bytes]:
    """Bytes of every kind: noise, JSON of other shapes, good messages that were cut, and that were changed."""
    good = [encode(registered()), encode(Deregistered(id=new_id(), term=new_id(), by=OWNER)), encode(Heartbeat(7))]
    cut = st.sampled_from(good).flatmap(lambda data: st.integers(0, len(data) - 1).map(lambda end: data[:end]))
    shaped = _JSON.map(lambda value: json.dumps(value).encode(errors="replace"))
    return _drawn(st.binary(max_size=300) | shaped | cut | st.sampled_from(good).flatmap(_changed), count)


def bad_events() -> list[tuple[str, bytes]]:
    """(subject, data) of what each is no event for a reason of its own."""
    good = json.loads(encode(registered()))
    changes: list[dict[str, Any]] = [
        {"type": "migrated"},
        {"type": 7},
        {"term": new_id()},
        {"id": None},
        {"by": "owner"},
        {"instance": {**good["instance"], "endpoints": []}},
        {"instance": {**good["instance"], "ttl": 0}},
        {"instance": {**good["instance"], "ttl": 1e308}},
        {"instance": {**good["instance"], "metadata": {"a": "\0"}}},
        {"health": "well"},
        {"padding": "x" * 900_000},
    ]
    data = [encoded({**good, **change}) for change in changes]
    data += [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b"{" * 5000,
        b"[" * 100_000,
        b'{"type":"registered"}',
        b"NaN",
        b'"',
    ]
    here = subjects.event(GHOST)
    elsewhere = ["adsum.v1.default.event.Orders.ghost", "adsum.v1.default.event.orders.gh_ost"]
    elsewhere += [f"adsum.v1.default.event.orders.{'g' * 64}", "adsum.v1.-.event.orders.ghost"]
    return [(here, one) for one in data] + [(subject, encoded(good)) for subject in elsewhere]


def future_events(of: Key) -> list[tuple[str, bytes]]:
    """A life as a later version tells it: fields that are not known here, which are no reason to refuse it."""
    good = json.loads(encode(registered()))
    good["instance"]["colour"] = {"name": "blue"}
    update = {"type": "updated", "id": new_id(), "term": good["term"], "by": good["by"], "instance": good["instance"]}
    return [(subjects.event(of), encoded({**one, "since": "2.0", "links": [1, 2]})) for one in (good, update)]


def encoded(value: object) -> bytes:
    """As JSON."""
    return json.dumps(value).encode()


def _changed(data: bytes) -> st.SearchStrategy[bytes]:
    """A good message with one field gone or of another kind."""
    fields = json.loads(data)

    def change(name: str, value: object) -> bytes:
        changed = {key: (value if key == name else old) for key, old in fields.items() if (key, value) != (name, None)}
        return json.dumps(changed).encode(errors="replace")

    return st.builds(change, st.sampled_from(sorted(fields)), _JSON)


def _drawn(strategy: st.SearchStrategy[bytes], count: int) -> list[bytes]:
    """So many examples: what fails with one is repeated with the blob that pytest prints of its own."""
    found: list[bytes] = []

    @settings(max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def draw(data: bytes) -> None:
        found.append(data)

    draw()
    return found
