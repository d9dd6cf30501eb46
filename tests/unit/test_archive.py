"""The export file: every byte comes back, and every defect has a name."""

from __future__ import annotations

import gzip
import json
import os
import stat
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.events.archive import (
    ArchiveCut,
    ArchiveEdited,
    ArchiveError,
    ArchiveTooNew,
    ArchiveUnordered,
    Header,
    NotAnArchive,
    Trailer,
    check_archive,
    read_archive,
    write_archive,
)
from adsum.events.chain import GENESIS, link
from adsum.events.reader import Message

HEADER = Header(epoch="0198c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10", written="2026-01-31T12:00:00Z")
PAYLOADS = [
    b'{"type":"registered","id":"x"}',
    b'{"a": 1.0,  "b":"\xc3\xbc\\u00fc","a":2}',  # spelled in a way that nobody would write it again
    b"",
    b"\xff\xfe no text",
    b'{"a":\n1}',
    b' {"a":1}',
    b'{"a":1}\r',
    b"{",
    b'"text"',
    b"[" * 2000 + b"]" * 2000,
    b'"\xff"',
    b"1e999",
    b"null",
]


def messages(*payloads: bytes) -> list[Message]:
    """Messages with gaps between their sequences."""
    return [
        Message(f"adsum.v1.default.event.orders.o-{at}", data, 3 * at + 1, 1_700_000_000 + at + 0.000001)
        for at, data in enumerate(payloads)
    ]


def write(file: Path, said: list[Message], header: Header = HEADER) -> Trailer:
    """Write a file of these."""
    with write_archive(str(file), header) as archive:
        for message in said:
            archive.add(message)
    return archive.trailer


def read(file: Path) -> tuple[Header, list[Message], Trailer]:
    """All that a file holds."""
    with read_archive(str(file)) as archive:
        found = list(archive)
        return archive.header, found, archive.trailer


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_every_byte_comes_back(tmp_path: Path, name: str) -> None:
    said, file = messages(*PAYLOADS), tmp_path / name
    trailer = write(file, said)
    head = GENESIS
    for message in said:
        head = link(head, message)
    assert trailer == Trailer(messages=len(said), last=said[-1].sequence, head=head.hex())
    assert read(file) == (HEADER, said, trailer)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@given(st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: json.dumps(text).encode()))))
def test_any_payload_comes_back(tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]) -> None:
    file = tmp_path_factory.mktemp("any") / "log.jsonl"
    said = messages(*payloads)
    write(file, said)
    assert read(file)[1] == said


def test_any_tool_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    write(file, messages(PAYLOADS[0], b"\xff"))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines[0]["adsum"] == "log"
    assert lines[1] == {
        "sequence": 1,
        "time": 1_700_000_000_000_001,
        "subject": "adsum.v1.default.event.orders.o-0",
        "payload": {"type": "registered", "id": "x"},
    }
    assert lines[2]["base64"] == "/w=="
    assert lines[3].keys() == {"end"}


def test_an_empty_log(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    trailer = write(file, [])
    assert trailer == Trailer(messages=0, last=0, head=GENESIS.hex())
    assert check_archive(str(file)) == (HEADER, trailer)


def test_one_that_begins_later_goes_on_from_the_head_before_it(tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    said = messages(*PAYLOADS)
    wanted = write(whole, said)
    before = write(tmp_path / "before", said[:3])
    header = Header(epoch=HEADER.epoch, first=before.last + 1, head=before.head)
    found = write(part, said[3:], header)
    assert (found.last, found.head) == (wanted.last, wanted.head)
    assert check_archive(str(part)) == (header, found)


def test_what_was_not_written_to_its_end_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("the one of yesterday")
    with pytest.raises(AttributeError), write_archive(str(file), HEADER) as archive:
        archive.add(None)  # type: ignore[arg-type]  # fails in the middle
    assert file.read_text() == "the one of yesterday"
    assert list(tmp_path.iterdir()) == [file]


def without_last_line(data: bytes) -> bytes:
    return data[: data[:-1].rindex(b"\n") + 1]


def middle_lines_changed(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    lines[1], lines[2] = lines[2], lines[1]
    return b"".join(lines)


@pytest.mark.parametrize(
    ("spoil", "kind", "told"),
    [
        (without_last_line, ArchiveCut, "after sequence 4, without its last line"),
        (lambda data: data[:-5], ArchiveCut, "in the middle of the line after sequence 4"),
        (lambda data: data[: data.index(b"\n") + 30], ArchiveCut, "in the middle of the line after sequence 0"),
        (lambda _: b"", NotAnArchive, "it is empty"),
        (lambda _: b"\x00\x01\x02" * 100, NotAnArchive, "it is no export of a log"),
        (lambda _: b'{"type":"registered"}\n', NotAnArchive, "it is no export of a log"),
        (lambda _: b"[" * 100_000, NotAnArchive, "it is no export of a log"),
        (lambda data: data.replace(b'"head":"0000', b'"head":"00', 1), NotAnArchive, "no place in a log"),
        (lambda data: data.replace(b'"head":"0000', b'"head":"zz00', 1), NotAnArchive, "no export of a log"),
        (lambda data: data.replace(b'"version":1', b'"version":2'), ArchiveTooNew, "version 2"),
        (lambda _: b'{"adsum":"log","version":9,"what":1}\n', ArchiveTooNew, "version 9"),
        (lambda data: data.replace(b"paid", b"owed"), ArchiveEdited, "it is not as it was written"),
        (lambda data: data.replace(b"17000000000000", b"17000000000001", 1), ArchiveEdited, "not as it was written"),
        (lambda data: data.replace(b"orders.o-1", b"orders.o-2"), ArchiveEdited, "not as it was written"),
        (lambda data: data.replace(b"event.orders", b"orders", 1), ArchiveEdited, "is no message of a log"),
        (lambda data: data.replace(b'"messages":2', b'"messages":3'), ArchiveEdited, "not as it was written"),
        (lambda data: data.replace(b'{"sequence":4', b'{"sequence":"4"'), ArchiveEdited, "after sequence 1 cannot"),
        (lambda data: data.replace(b'"/w=="', b'"/w="'), ArchiveEdited, "no base64"),
        (lambda data: data + b"{}\n", ArchiveEdited, "something follows"),
        (middle_lines_changed, ArchiveUnordered, "sequence 1 comes after sequence 4"),
    ],
)
def test_every_defect_has_a_name(
    tmp_path: Path, spoil: Callable[[bytes], bytes], kind: type[ArchiveError], told: str
) -> None:
    file = tmp_path / "log.jsonl"
    write(file, messages(b'{"paid":1}', b"\xff"))
    spoiled = spoil(file.read_bytes())
    assert spoiled != file.read_bytes()
    file.write_bytes(spoiled)
    with pytest.raises(ArchiveError) as raised:
        check_archive(str(file))
    assert type(raised.value) is kind, raised.value
    assert told in str(raised.value)
    assert str(raised.value).startswith(str(file))


@pytest.mark.parametrize("at", [1, 2, 15, -1, -9, -30])
def test_a_compressed_file_that_was_cut_off(tmp_path: Path, at: int) -> None:
    file = tmp_path / "log.jsonl.gz"
    write(file, messages(*PAYLOADS))
    file.write_bytes(file.read_bytes()[:at])
    with pytest.raises(NotAnArchive if at == 1 else ArchiveCut):
        check_archive(str(file))


def test_compressed_data_that_are_damaged(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl.gz"
    write(file, messages(*PAYLOADS))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x55
    file.write_bytes(data)
    with pytest.raises(ArchiveError):
        check_archive(str(file))
    file.write_bytes(gzip.compress(b"something else\n"))
    with pytest.raises(NotAnArchive):
        check_archive(str(file))


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(NotAnArchive, match="cannot be read"):
            check_archive(str(path))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    data = json.dumps({"type": "registered", "filling": "x" * 300}).encode()

    def peak(count: int) -> int:
        with write_archive(str(file), HEADER) as archive:
            for at in range(count):
                archive.add(Message("adsum.v1.default.event.orders.o-1", data, at + 1, 1.0))
        tracemalloc.start()
        check_archive(str(file))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(5_000) < peak(200) + 200_000


def test_what_is_no_file_is_written_into_and_stays(tmp_path: Path) -> None:
    """A device, a pipe: a file in its place would be found by whoever uses it next."""
    pipe, said = tmp_path / "pipe", messages(b"1", b"2")
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        found = pool.submit(pipe.read_bytes)
        write(pipe, said)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes(found.result(10))
    assert read(copy)[1] == said


def test_a_link_stays_one_and_what_it_names_is_written(tmp_path: Path) -> None:
    link_to, file, said = tmp_path / "latest.jsonl", tmp_path / "log.jsonl", messages(b"1")
    link_to.symlink_to(file)
    write(link_to, said)
    assert link_to.is_symlink()
    assert read(file)[1] == said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest.jsonl", "log.jsonl"]


def test_a_new_one_never_takes_the_place_of_another(tmp_path: Path) -> None:
    """Also of one that came while it was written."""
    file = tmp_path / "log.jsonl"
    with pytest.raises(FileExistsError), write_archive(str(file), Header(epoch="1"), new=True):
        file.write_text("another")
    assert file.read_text() == "another"
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_killed_one_left_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container each run has the same process id."""
    file, said = tmp_path / "log.jsonl", messages(b"1", b"2")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda self: None)
        patched.setattr(Path, "rename", lambda self, other: None)
        write(file, messages(b"0"))
    write(file, said)
    assert read(file)[1] == said


@pytest.mark.parametrize("name", [".", "/", "", "folder"])
def test_what_names_a_folder_or_nothing_is_an_error_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Before anything is written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"), write_archive(name, Header(epoch="1")):
        raise AssertionError("it was begun")
