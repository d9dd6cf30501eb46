"""Having a reconciler take its turns: when it is woken, again after trouble, and once a TTL by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .notice import Notice
from .reconciler import Reconciler

__all__ = ["Turns"]


class Turns:
    """Of one reconciler. Between two turns there is no task, only a timer, so a process can keep ten thousands."""

    __slots__ = ("_again", "_ended", "_over", "_reconciler", "_tasks", "_timer", "_turn")

    def __init__(self, reconciler: Reconciler, tasks: asyncio.TaskGroup, over: Callable[[], None]) -> None:
        self._reconciler, self._tasks, self._over = reconciler, tasks, over
        self._turn: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._again, self._ended = False, False
        reconciler.wake = self.wake

    def wake(self) -> None:
        """Take a turn now, or another one after this one."""
        self._again = True
        if self._turn is None and not self._ended:
            self._begin()

    async def over(self, notice: Notice, timeout: float) -> bool:
        """Wait until there are no more turns to take, at most so long; then there are none all the same."""
        try:
            return await notice.until(lambda: self._ended, timeout)
        finally:  # also when cancelled meanwhile
            self._ended = True
            if self._timer is not None:
                self._timer.cancel()
            if self._turn is not None:
                self._turn.cancel()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._turn = self._tasks.create_task(self._take(), name=f"{self._reconciler.key}: reconciler")

    async def _take(self) -> None:
        self._again = False
        rest = await self._reconciler.turn()
        self._turn = None
        if rest is None:
            self._ended = True
            self._reconciler.notice.tell()
            self._over()
        elif self._again:
            self._begin()
        elif not self._ended:
            self._timer = asyncio.get_running_loop().call_later(rest, self._rested)

    def _rested(self) -> None:
        self._timer = None
        self._reconciler.rested()
        self._begin()
