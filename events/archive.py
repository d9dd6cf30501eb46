"""The export file of a log: text that any tool reads, and that says of itself whether it is whole.

The first line is the header, the last one the trailer, each other line a message: one JSON object a line. A payload
that is JSON on one line stands there byte by byte as it is, any other one in base64. The trailer's `head` is the
running hash (see `chain`) over the messages of the file, from the header's `head` on, which is that of the log just
before `first`: 64 zeros where the file begins with the log. Whatever is wrong with a file is an ArchiveError.

    ArchiveError
    ├── NotAnArchive          it is something else
    ├── ArchiveTooNew         a newer adsum wrote it
    ├── ArchiveCut            its end is missing
    ├── ArchiveUnordered      a sequence does not follow the one before
    └── ArchiveEdited         it does not hold what was written: the running hash or the count is another one
"""

from __future__ import annotations

import base64
import binascii
import errno
import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Literal

import msgspec

from .chain import GENESIS, link
from .errors import AdsumError, InvalidValue, Undecodable
from .ids import new_id
from .reader import Message
from .subjects import key_of

__all__ = [
    "Archive",
    "ArchiveCut",
    "ArchiveEdited",
    "ArchiveError",
    "ArchiveTooNew",
    "ArchiveUnordered",
    "ArchiveWriter",
    "Header",
    "NotAnArchive",
    "Trailer",
    "check_archive",
    "read_archive",
    "write_archive",
]

VERSION = 1
LONGEST_LINE = 1 << 26
"""Bytes: above what the broker carries as one message, base64 and escapes included."""
COMPRESSION = 6
GZIP = b"\x1f\x8b"
"""How compressed files begin."""


class ArchiveError(AdsumError):
    """The file cannot be used. Names it, and says why."""

    def __init__(self, file: str, what: str) -> None:
        self.file, self.what = file, what
        super().__init__(f"{file}: {what}")


class NotAnArchive(ArchiveError):
    """It is something else."""


class ArchiveTooNew(ArchiveError):
    """A newer adsum wrote it."""


class ArchiveCut(ArchiveError):
    """Its end is missing."""


class ArchiveUnordered(ArchiveError):
    """A sequence does not follow the one before."""


class ArchiveEdited(ArchiveError):
    """It does not hold what was written."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. Of the log of `epoch` the file holds everything from sequence `first` on, up to its trailer.

    `head` is the running hash just before `first`. With `namespace` it holds only that namespace, as if the log held no
    other; then the hashes are those of such a log. `written`: when, in ISO 8601.
    """

    adsum: Literal["log"] = "log"
    version: int = VERSION
    epoch: str
    first: int = 1
    head: str = GENESIS.hex()
    namespace: str = ""
    written: str = ""


class Trailer(msgspec.Struct, frozen=True, kw_only=True):
    """The last line: how many messages, the sequence of the last (`first` - 1: none), the running hash there."""

    messages: int
    last: int
    head: str


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message, `time` in microseconds since 1970, its payload in one of two fields. Or, with `end`, the trailer."""

    sequence: int = 0
    time: int = 0
    subject: str = ""
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    base64: str | None = None
    end: Trailer | None = None


_encode = msgspec.json.Encoder().encode
_any = msgspec.json.Decoder(msgspec.Raw)
_line = msgspec.json.Decoder(_Line)


class ArchiveWriter:
    """Writes a file line by line, made by `write_archive`. `trailer` is what its last line would say now."""

    def __init__(self, out: IO[bytes], header: Header) -> None:
        self._out, self._head = out, bytes.fromhex(header.head)
        self._last, self._count = header.first - 1, 0
        out.write(_encode(header) + b"\n")

    @property
    def trailer(self) -> Trailer:
        """What the file holds so far."""
        return Trailer(messages=self._count, last=self._last, head=self._head.hex())

    def add(self, message: Message) -> None:
        """Write the next message."""
        self._out.write(_written(message))
        self._head = link(self._head, message)
        self._last, self._count = message.sequence, self._count + 1

    def end(self) -> None:
        """Write the last line."""
        self._out.write(_encode(_Line(end=self.trailer)) + b"\n")


@contextmanager
def write_archive(file: str, header: Header, new: bool = False) -> Iterator[ArchiveWriter]:
    """Write `file` ("-": standard output; compressed where the name ends in .gz).

    It is there, whole and on disk, once the block was left, and not there at all if that was by an error. `new`: never
    in the place of another file. What is no file (a device, a pipe) is written into, and is never replaced.
    """
    if file == "-":
        writer = ArchiveWriter(sys.stdout.buffer, header)
        yield writer
        writer.end()
        sys.stdout.buffer.flush()
        return
    path = Path(os.path.realpath(file))  # the file that a link names, not the link
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
    if path.exists() and not path.is_file():
        with path.open("wb") as raw, _written_to(raw, file, header) as writer:
            yield writer
        return
    part = path.with_name(f".{path.name}.{new_id()[-12:]}.part")
    try:
        with part.open("xb") as raw:
            with _written_to(raw, file, header) as writer:
                yield writer
            raw.flush()
            os.fsync(raw.fileno())
        if new:
            os.link(part, path)  # which, unlike a renaming, never replaces
        else:
            part.rename(path)
        _sync_folder(path.parent)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


@contextmanager
def _written_to(raw: IO[bytes], file: str, header: Header) -> Iterator[ArchiveWriter]:
    with _compressed(raw) if file.endswith(".gz") else _plain(raw) as out:
        writer = ArchiveWriter(out, header)
        yield writer
        writer.end()


class Archive:
    """A file that is read, made by `read_archive`: its header, its messages once, and then its trailer."""

    def __init__(self, file: str, lines: Iterator[bytes]) -> None:
        self.file, self._lines = file, lines
        self.header = self._read_header()
        self._trailer: Trailer | None = None

    @property
    def trailer(self) -> Trailer:
        """What the last line says; only after all messages were read."""
        assert self._trailer is not None, "the messages were not all read"
        return self._trailer

    def __iter__(self) -> Iterator[Message]:
        """The messages in order; each is as it was written once all were read without an error."""
        head, last, count = bytes.fromhex(self.header.head), self.header.first - 1, 0
        for data in self._lines:
            line = self._decode(data, after=last)
            if line.end is not None:
                self._end(line.end, Trailer(messages=count, last=last, head=head.hex()))
                return
            message = self._message(line, last)
            head, last, count = link(head, message), message.sequence, count + 1
            yield message
        raise ArchiveCut(self.file, f"it ends after sequence {last}, without its last line: it was cut off")

    def _read_header(self) -> Header:
        data = next(self._lines, b"")
        if not data:
            raise NotAnArchive(self.file, "it is empty")
        try:
            header = msgspec.json.decode(data, type=Header)
            usable = header.first >= 1 and len(bytes.fromhex(header.head)) == len(GENESIS)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
            newer = _version_of(data)
            if newer > VERSION:
                raise ArchiveTooNew(self.file, _too_new(newer)) from None
            what = f"it is no export of a log: its first line is no header ({error})"
            raise NotAnArchive(self.file, what) from None
        if header.version > VERSION:
            raise ArchiveTooNew(self.file, _too_new(header.version))
        if not usable:
            raise NotAnArchive(self.file, "its header tells of no place in a log")
        return header

    def _decode(self, data: bytes, after: int) -> _Line:
        if not data.endswith(b"\n"):
            raise ArchiveCut(self.file, f"it ends in the middle of the line after sequence {after}: it was cut off")
        try:
            return _line.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ArchiveEdited(self.file, f"the line after sequence {after} cannot be read ({error})") from None

    def _message(self, line: _Line, last: int) -> Message:
        if line.sequence <= last:
            raise ArchiveUnordered(self.file, f"sequence {line.sequence} comes after sequence {last}")
        try:
            key_of(line.subject)
            data = _payload(line)
        except (Undecodable, InvalidValue) as error:
            raise ArchiveEdited(self.file, f"sequence {line.sequence} is no message of a log: {error}") from None
        except binascii.Error as error:
            raise ArchiveEdited(self.file, f"the payload of sequence {line.sequence} is no base64 ({error})") from None
        return Message(line.subject, data, line.sequence, line.time / 1e6)

    def _end(self, told: Trailer, found: Trailer) -> None:
        if next(self._lines, b""):
            raise ArchiveEdited(self.file, "something follows its last line")
        if told != found:
            what = (
                f"it holds {found.messages} messages up to sequence {found.last} with the running hash {found.head}, "
                f"its last line tells of {told.messages} up to {told.last} with {told.head}"
            )
            raise ArchiveEdited(self.file, f"it is not as it was written: {what}")
        self._trailer = told


@contextmanager
def read_archive(file: str) -> Iterator[Archive]:
    """Read `file` as a stream. Raises ArchiveError, here or while its messages are read."""
    try:
        raw = Path(file).open("rb")  # noqa: SIM115  # closed below; what its reader does must not pass for ours
    except OSError as error:
        raise NotAnArchive(file, f"it cannot be read: {error.strerror or error}") from None
    with raw:
        yield Archive(file, _lines(file, raw))


def check_archive(file: str) -> tuple[Header, Trailer]:
    """Read a file from its first line to its last. Raises ArchiveError."""
    with read_archive(file) as archive:
        for _ in archive:
            pass
        return archive.header, archive.trailer


def _lines(file: str, raw: BufferedReader) -> Iterator[bytes]:
    """The lines with their ends; what reading or the compression says of a defect is said as ours."""
    try:
        source = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == GZIP else raw
        while line := source.readline(LONGEST_LINE):
            if len(line) >= LONGEST_LINE:
                raise NotAnArchive(file, f"it has a line longer than {LONGEST_LINE} bytes")
            yield line
    except EOFError:
        raise ArchiveCut(file, "its compressed data end early: it was cut off") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ArchiveEdited(file, f"its compressed data are damaged: {error}") from None
    except OSError as error:
        raise NotAnArchive(file, f"it cannot be read: {error.strerror or error}") from None


def _written(message: Message) -> bytes:
    data = message.data
    verbatim = _is_one_line_of_json(data)
    line = _Line(
        sequence=message.sequence,
        time=round(message.time * 1e6),
        subject=message.subject,
        payload=msgspec.Raw(data) if verbatim else msgspec.UNSET,
        base64=None if verbatim else base64.b64encode(data).decode(),
    )
    return _encode(line) + b"\n"


def _payload(line: _Line) -> bytes:
    if line.base64 is not None:
        return base64.b64decode(line.base64, validate=True)
    return bytes(line.payload) if isinstance(line.payload, msgspec.Raw) else b""


def _is_one_line_of_json(data: bytes) -> bool:
    """Whether it can stand in a line of JSON as it is, and will be read from there byte by byte the same."""
    if b"\n" in data or b"\r" in data or data[:1].isspace() or data[-1:].isspace():
        return False
    try:
        data.decode()
        return bytes(_any.decode(data)) == data
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _version_of(data: bytes) -> int:
    """The version in a header that cannot be read otherwise; 0: none."""
    try:
        said = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return 0
    if not isinstance(said, dict) or said.get("adsum") != "log":
        return 0
    version = said.get("version")
    return version if isinstance(version, int) else 0


def _too_new(version: int) -> str:
    return f"it has version {version}, this adsum reads versions up to {VERSION}: use a newer adsum"


@contextmanager
def _compressed(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    with gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION, fileobj=raw, mtime=0) as packed:
        yield packed  # type: ignore[misc]  # a GzipFile writes bytes


@contextmanager
def _plain(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    yield raw


def _sync_folder(folder: Path) -> None:
    """So that also the new name is on disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
