"""Logs for tests of the audit: said by hand, read whole, and files of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adsum.events.archive import Header, Trailer, read_archive, write_archive
from adsum.events.broker import Broker
from adsum.events.chain import GENESIS, link
from adsum.events.reader import Message, StreamReader
from adsum.events.streams import EVENTS

__all__ = ["LONG_AGO", "file_of", "head_of", "in_file", "whole_log"]

LONG_AGO = 1_700_000_000.000001
"""A time of November 2023."""


async def whole_log(broker: Broker) -> list[Message]:
    """Everything in the log, as its readers see it."""
    found: list[Message] = []
    async with StreamReader(broker, EVENTS) as reader:
        while batch := await reader.to_end():
            found += batch
    return found


def head_of(said: Sequence[Message], head: bytes = GENESIS) -> str:
    """The running hash after these."""
    for message in said:
        head = link(head, message)
    return head.hex()


def in_file(file: Path) -> tuple[Header, list[Message], Trailer]:
    """All that a file holds."""
    with read_archive(str(file)) as archive:
        found = list(archive)
        return archive.header, found, archive.trailer


def file_of(file: Path, said: Sequence[Message], header: Header | None = None) -> Path:
    """A file of these messages."""
    with write_archive(str(file), header or Header(epoch="0198c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10")) as archive:
        for message in said:
            archive.add(message)
    return file
