"""The circle of a consistent hash: points with names, of which the next after a place is found in constant time."""

from __future__ import annotations

import struct
from bisect import bisect, insort
from collections.abc import Iterator
from hashlib import blake2b

from adsum.events.errors import InvalidValue

__all__ = ["BITS", "Ring", "position"]

BITS = 64
CROWDED, SPARSE = 4.0, 0.5
"""Points a bucket, on average, between which nothing is arranged anew."""
_EIGHT = struct.Struct(">8Q")


class Ring:
    """Points in buckets by their leading bits, so that adding, removing and finding one looks at a handful only."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[int, ...]] = {}
        self._count = 0
        self._shift = BITS
        self._buckets: list[list[tuple[int, str]]] = [[]]

    def place(self, name: str, count: int) -> None:
        """Let a name have so many points, 0 for none. They are the same in every process; more include the fewer."""
        before = self._names.pop(name, ())
        points = before[:count] if count <= len(before) else _points(name, count)
        shift, buckets = self._shift, self._buckets
        for point in before[count:]:
            buckets[point >> shift].remove((point, name))
        for point in points[len(before) :]:
            insort(buckets[point >> shift], (point, name))
        if points:
            self._names[name] = points
        self._count += len(points) - len(before)
        if not SPARSE * len(buckets) <= self._count <= CROWDED * len(buckets):
            self._arrange()

    def next(self, place: int) -> str:
        """The name of the first point from a place on."""
        buckets = self._buckets
        number = place >> self._shift
        bucket = buckets[number]
        at = bisect(bucket, (place,))
        if at < len(bucket):
            return bucket[at][1]
        while not (bucket := buckets[(number := number + 1) % len(buckets)]):
            pass
        return bucket[0][1]

    def names_from(self, place: int) -> Iterator[str]:
        """The names of all points from a place on, once around."""
        buckets = self._buckets
        first = place >> self._shift
        at = bisect(buckets[first], (place,))
        for _, name in buckets[first][at:]:
            yield name
        for number in range(first + 1, first + len(buckets)):
            for _, name in buckets[number % len(buckets)]:
                yield name
        for _, name in buckets[first][:at]:
            yield name

    def _arrange(self) -> None:
        bits = max(0, self._count.bit_length() - 1)  # then there are one to two points a bucket
        self._shift = BITS - bits
        self._buckets = [[] for _ in range(1 << bits)]
        for point, name in sorted((point, name) for name, points in self._names.items() for point in points):
            self._buckets[point >> self._shift].append((point, name))


def _points(name: str, count: int) -> tuple[int, ...]:
    found: list[int] = []
    for block in range((count + 7) // 8):
        found += _EIGHT.unpack(blake2b(f"{name}#{block}".encode()).digest())
    return tuple(found[:count])


def position(key: str | bytes | None, circle: bytes = b"") -> int:
    """Where on a circle (0 to 2^64 - 1) a key is, in every process the same. Raises InvalidValue without a key.

    `circle`: the name of another one, where the same key is at a place that has nothing to do with this one.
    """
    if key is None:
        raise InvalidValue("key", key, "is what a consistent hash chooses by: pick(key), call(…, key=key)")
    told = key.encode(errors="surrogatepass") if isinstance(key, str) else key
    try:
        digest = blake2b(told, digest_size=8, person=circle).digest()
    except TypeError:
        raise InvalidValue("key", key, "must be text or bytes") from None
    return int.from_bytes(digest, "big")
