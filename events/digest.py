"""A digest of a set of (id, revision) pairs that is kept up to date in constant time.

The digest is the sum modulo 2^128 of a hash of each pair (an additive multiset hash, Bellare and Micciancio 1997), so
that adding and removing one instance costs the same whatever the size of the set, on both sides of the wire. It
finds accidents, not adversaries.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["Digest"]

_MODULUS = 1 << 128


class Digest:
    """The digest of a set that changes one pair at a time."""

    __slots__ = ("_sum", "count")

    def __init__(self) -> None:
        self._sum = 0
        self.count = 0

    def add(self, id: str, revision: int) -> None:
        """Take the pair in; it must not be in the set yet."""
        self._sum = (self._sum + _hash(id, revision)) % _MODULUS
        self.count += 1

    def remove(self, id: str, revision: int) -> None:
        """Take the pair out; it must be in the set."""
        self._sum = (self._sum - _hash(id, revision)) % _MODULUS
        self.count -= 1

    def hex(self) -> str:
        """32 hexadecimal digits; all zero for the empty set."""
        return f"{self._sum:032x}"


def _hash(id: str, revision: int) -> int:
    return int.from_bytes(blake2b(f"{id} {revision}".encode(), digest_size=16).digest())
