"""What the stream of the log says of itself in its metadata: the notes that operators' commands leave there.

They are the log's own word, so they hold for whoever reads it. Only `adsum import`, `adsum epoch --new` and `adsum
trim` write them, each in one change of the stream's settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nats.js.api import StreamInfo

from .chain import GENESIS

__all__ = ["TIME_HEADER", "Notes", "notes_in", "notes_of", "time_of"]

TIME_HEADER = "Adsum-Time"
"""In a message that was imported: when it was stored at first, in microseconds since 1970."""
_PREFIX = "adsum-"


class Notes(NamedTuple):
    """`epoch`: which log this is. `imported`: up to this sequence messages bear the time at which they were said.

    `trimmed`: what was up to this sequence was removed on purpose; `trimmed_head` is the running hash there.
    `importing`, `trimming`: a command is at work on the stream, or was cut off in the middle (who and when); "": none.
    """

    epoch: str = ""
    imported: int = 0
    trimmed: int = 0
    trimmed_head: bytes = GENESIS
    importing: str = ""
    trimming: str = ""

    def metadata(self) -> dict[str, str]:
        """As they stand in a stream's metadata."""
        told = self._replace(trimmed_head=b"")._asdict() | {"trimmed_head": self.trimmed_head.hex()}
        given = {name: value for name, value in told.items() if value and value != GENESIS.hex()}
        return {_PREFIX + name.replace("_", "-"): str(value) for name, value in given.items()}

    def within(self, metadata: Mapping[str, str]) -> dict[str, str]:
        """These instead of the ones in `metadata`, all else there kept."""
        kept = {name: value for name, value in metadata.items() if not name.startswith(_PREFIX)}
        return kept | self.metadata()


def notes_of(info: StreamInfo) -> Notes:
    """The notes in the settings of the log's stream."""
    return notes_in(info.config.metadata)


def notes_in(metadata: Mapping[str, str] | None) -> Notes:
    """The notes in a stream's metadata. What cannot be read counts as not there."""
    found = metadata or {}

    def text(name: str) -> str:
        return found.get(_PREFIX + name, "")

    def number(name: str) -> int:
        return int(text(name)) if text(name).isdecimal() else 0

    try:
        head = bytes.fromhex(text("trimmed-head")) or GENESIS
    except ValueError:
        head = GENESIS
    return Notes(text("epoch"), number("imported"), number("trimmed"), head, text("importing"), text("trimming"))


def time_of(headers: Mapping[str, str] | None, sequence: int, stored: float, imported: int) -> float:
    """When a message of the log was said: `stored` is when the broker stored it, `imported` is the log's note.

    Above what was imported nobody is believed: whoever publishes could claim any time.
    """
    claimed = (headers or {}).get(TIME_HEADER, "")
    return int(claimed) / 1e6 if sequence <= imported and claimed.isdecimal() else stored
