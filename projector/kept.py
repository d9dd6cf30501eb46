"""A running hash that somebody kept: whether the log had it, at the revision it was kept with or at any. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from adsum.events.chain import GENESIS
from adsum.events.tools import Difference

__all__ = ["KeptHead"]


class KeptHead:
    """`head` in hex. `revision`: where the log should have had it, None: somewhere."""

    def __init__(self, head: str, revision: int | None) -> None:
        self._head, self._revision = bytes.fromhex(head), revision
        self._found: int | None = None
        self._there = GENESIS

    @property
    def told(self) -> str:
        """What is compared, and where it was found."""
        at = self._revision if self._revision is not None else self._found
        return f"the running hash that was kept{f', of revision {at}' if at is not None else ''}"

    def take(self, links: Mapping[int, bytes]) -> None:
        """The running hash at each of these sequences."""
        for sequence, head in links.items():
            if head == self._head:
                self._found = sequence
            if self._revision is not None and sequence <= self._revision:
                self._there = head

    def difference(self, end: int) -> Difference | None:
        """What is wrong with it, the log being read up to `end`."""
        if self._revision is None:
            return None if self._found is not None else self._differs(f"revisions up to {end}", "no such hash")
        place = f"revision {self._revision}"
        if self._revision > end:
            return self._differs(place, f"that it ends at revision {end}")
        return None if self._there == self._head else self._differs(place, self._there.hex())

    def _differs(self, place: str, expected: str) -> Difference:
        head = self._head.hex()
        return Difference(part="log", table="", place=place, field="head", expected=expected, found=head)
