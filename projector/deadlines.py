"""Whose silence is to be looked into, and when: slots of one second of observed time. Pure.

Whoever was heard cannot be silent before its TTL is over, so a life is looked at once a TTL and not with every tick.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from adsum.events.names import Key

__all__ = ["Deadlines"]


class Deadlines:
    """For each key the value of the observed clock from which on it is due; those given here are due at once.

    From the second on in which that value lies, so up to a second too early and never late.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self._slot_of: dict[Key, int] = {}
        self._slots: dict[int, dict[Key, None]] = {}
        for key in keys:
            self.put(key, 0.0)

    def put(self, key: Key, at: float) -> None:
        """It is due from `at` on, and no more when it was due before."""
        before, slot = self._slot_of.get(key), math.floor(at)
        if before is not None:
            keys = self._slots[before]
            del keys[key]
            if not keys:
                del self._slots[before]
        self._slot_of[key] = slot
        self._slots.setdefault(slot, {})[key] = None

    def take(self, clock: float) -> list[Key]:
        """All that are due at `clock`, those that are due for longest first; each is to be put back."""
        taken = [key for slot in sorted(self._slots) if slot <= clock for key in self._slots.pop(slot)]
        for key in taken:
            del self._slot_of[key]
        return taken
