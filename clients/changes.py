"""`changes()`: what changed since a reader last looked, without ever growing beyond the set itself."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable

from adsum.events.signals import Instance

from .cache import Change

__all__ = ["Change", "Changes", "seen_with"]


class Changes:
    """An async iterator of one reader. A slow reader loses nothing: what happens to an instance while it is away is
    folded into one change (the `before` of the first, the `after` of the last; who came and left is not told)."""

    def __init__(self, present: Iterable[Instance], *, initial: bool = True) -> None:
        self.initial = initial
        self._pending: OrderedDict[tuple[str, str], Change] = OrderedDict()
        self._arrived = asyncio.Event()
        self._ended = False
        for instance in present:
            self.add(Change(None, instance))

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> Change:
        while not self._pending:
            if self._ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return self._pending.popitem(last=False)[1]

    def add(self, change: Change) -> None:
        """One more difference."""
        instance = change.instance
        key = instance.service, instance.id
        waiting = self._pending.get(key)
        if waiting is None:
            self._pending[key] = change
        elif waiting.before is None and change.after is None:
            del self._pending[key]
        else:
            self._pending[key] = Change(waiting.before, change.after, change.departed)
        self._arrived.set()

    def end(self) -> None:
        """No more will come; what waits is still handed out."""
        self._ended = True
        self._arrived.set()


def seen_with(capability: str, change: Change) -> Change | None:
    """The change as it looks to a reader who sees only instances with a capability: gaining it is joining."""
    before = change.before if change.before is not None and capability in change.before.capabilities else None
    after = change.after if change.after is not None and capability in change.after.capabilities else None
    return Change(before, after, change.departed) if before is not None or after is not None else None
