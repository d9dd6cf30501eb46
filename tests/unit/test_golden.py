"""The wire: today's bytes of every message are those of the golden files, and whatever v1 ever said stays readable.

A file under tests/golden/v1 is never edited. A message that says more gets a new field with a default and its sample
here the new value; then the bytes move to a new file, and the old one stays, to be read for ever.
"""

from __future__ import annotations

import json
import typing
from pathlib import Path

import msgspec
import pytest

from adsum.events import codec, lifecycle, signals
from adsum.events.errors import Undecodable
from tests.unit.samples import EARLIER, PRESENT, SAMPLES

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
every_sample = pytest.mark.parametrize("name", sorted(SAMPLES))


def default_of(field: msgspec.structs.FieldInfo) -> object:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().removesuffix(b"\n")


@every_sample
def test_encodes_to_exactly_these_bytes(name: str) -> None:
    assert codec.encode(SAMPLES[name].message) == golden(name)


@every_sample
def test_is_read_back(name: str) -> None:
    assert SAMPLES[name].decode(golden(name)) == SAMPLES[name].message


@pytest.mark.parametrize("name", sorted(EARLIER))
def test_what_was_said_earlier_is_read_for_ever(name: str) -> None:
    assert EARLIER[name].decode(golden(name)) == EARLIER[name].message


@every_sample
def test_unknown_fields_are_ignored(name: str) -> None:
    said = json.loads(golden(name)) | {"from-a-later-version": {"deep": [1, None, "x"]}}
    assert SAMPLES[name].decode(json.dumps(said).encode()) == SAMPLES[name].message


@every_sample
def test_a_missing_field_that_has_a_default_gets_it(name: str) -> None:
    message, decode = SAMPLES[name]
    said = json.loads(golden(name))
    for field in msgspec.structs.fields(message):
        if field.required:
            continue
        read = decode(json.dumps({key: value for key, value in said.items() if key != field.encode_name}).encode())
        assert getattr(read, field.name) == default_of(field)


@every_sample
def test_a_missing_field_that_has_none_is_refused(name: str) -> None:
    message, decode = SAMPLES[name]
    said = json.loads(golden(name))
    required = [field.encode_name for field in msgspec.structs.fields(message) if field.required]
    assert required
    for field in required:
        with pytest.raises(Undecodable, match=field):
            decode(json.dumps({key: value for key, value in said.items() if key != field}).encode())


def test_every_message_has_a_golden_file_and_every_file_is_read() -> None:
    messages = {
        *typing.get_args(lifecycle.Event),
        *typing.get_args(signals.Topology),
        signals.Heartbeat,
        signals.Report,
        signals.Tick,
        signals.ServiceMark,
        signals.NamespaceMark,
    }
    assert {type(sample.message) for sample in SAMPLES.values()} == messages
    assert {path.stem for path in GOLDEN.iterdir()} == {*SAMPLES, *EARLIER}


def test_every_field_of_a_sample_says_something() -> None:
    """Else a default could change and no golden file would show it."""
    for name, (message, _) in SAMPLES.items():
        for field in msgspec.structs.fields(message):
            assert field.required or getattr(message, field.name) != default_of(field), (name, field.name)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b"null", id="null"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param(b"[" * 200_000, id="nested without end"),
        pytest.param(b'{"type":"promoted","id":"a","term":"b","by":{"kind":"owner"}}', id="unknown tag"),
        pytest.param(b'{"id":"a","term":"b","by":{"kind":"owner"}}', id="no tag"),
    ],
)
@pytest.mark.parametrize("decode", [codec.decode_event, codec.decode_topology])
def test_anything_else_is_undecodable(decode: typing.Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(Undecodable) as caught:
        decode(data)
    assert caught.value.reason


def test_an_unknown_field_nested_without_end_is_undecodable() -> None:
    deep = b'{"deep":' + b"[" * 200_000 + b"]" * 200_000 + b"," + golden("deregistered")[1:]
    with pytest.raises(Undecodable, match="recursion"):
        codec.decode_event(deep)


def event_saying(reason: bytes) -> bytes:
    return golden("deregistered").replace(b'"moved"', b'"' + reason + b'"')


@pytest.mark.parametrize("reason", [rb"\u0000", rb"a\u0000b", rb"\\\u0000", b"\0", rb"\ud800", b"\xff"])
def test_text_that_no_database_could_keep_is_undecodable(reason: bytes) -> None:
    with pytest.raises(Undecodable):
        codec.decode_event(event_saying(reason))


@pytest.mark.parametrize(
    ("reason", "read"), [(rb"\\u0000", r"\u0000"), (rb"\\\\u0000", r"\\u0000"), (rb"\u0001", "\x01")]
)
def test_what_only_looks_like_nul_is_text(reason: bytes, read: str) -> None:
    event = codec.decode_event(event_saying(reason))
    assert isinstance(event, lifecycle.Deregistered)
    assert event.reason == read


@pytest.mark.parametrize("number", [b"-1", b"9223372036854775808", b"1e3", b'"1"', b"null"])
def test_a_counter_no_database_could_keep_is_undecodable(number: bytes) -> None:
    with pytest.raises(Undecodable):
        codec.decode_heartbeat(b'{"counter":' + number + b"}")


@pytest.mark.parametrize(
    ("liveness", "health", "mode", "routable"),
    [
        ("up", "passing", "serving", True),
        ("up", "warning", "serving", True),
        ("up", "critical", "serving", False),
        ("stale", "passing", "serving", False),
        ("up", "passing", "draining", False),
        ("up", "passing", "maintenance", False),
    ],
)
def test_routable_is_up_not_critical_and_serving(
    liveness: signals.Liveness, health: lifecycle.Health, mode: lifecycle.Mode, routable: bool
) -> None:
    assert msgspec.structs.replace(PRESENT, liveness=liveness, health=health, mode=mode).routable is routable
