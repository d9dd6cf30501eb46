"""The connections of one `Peers`: one an endpoint of a life, dialed once for all who want it, closed in order.

Dialing, hanging up and looking for idle ones are tasks of the block; no caller does any of it itself, so a caller who
is cancelled leaves nothing half done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from adsum.clients.block import start
from adsum.clients.cache import Change
from adsum.clients.choosing import Picked
from adsum.clients.choosing.outliers import Calls
from adsum.clients.errors import NotItself
from adsum.clients.notice import Notice

from .dialing import Dialer

__all__ = ["Line", "Pool"]

CLOSE_LIMIT = 5.0
"""Seconds that hanging up may take."""

QUICK = 0.1
"""Seconds in which one is hung up that makes room; if it takes longer, another one makes room too."""

log = logging.getLogger("adsum.peers")
C = TypeVar("C")


class Line(Generic[C]):
    """A connection to one endpoint of one life, from the moment it is dialed. `users`: calls that hold or await it."""

    __slots__ = (
        "answered",
        "began",
        "calls",
        "connected",
        "connection",
        "dialing",
        "endpoint",
        "error",
        "free",
        "instance",
        "picked",
        "ready",
        "used",
        "users",
    )

    def __init__(self, picked: Picked, now: float) -> None:
        self.picked = picked
        self.instance, self.endpoint, self.calls = picked.instance, picked.endpoint, picked.calls
        self.began = self.used = self.answered = now
        self.connection = cast(C, None)
        self.connected = self.ready = False
        self.error: Exception | None = None
        """Why the dial ended in vain; None also where it was given up."""
        self.users = 0
        self.free = asyncio.Event()
        self.dialing: asyncio.Task[None]

    def __str__(self) -> str:
        return f"{self.instance.key} at {self.endpoint.address}"


class Pool(Generic[C]):
    """`connect_timeout`: seconds of a dial, verifying included. `idle`: seconds without a call until it is closed.
    `limit`: connections at most, those being dialed or closed included. `linger`: seconds that calls may still go on
    over a connection to an instance that left. `unawaited` is told of a dial that failed when nobody waited for it."""

    def __init__(
        self,
        dial: Dialer[C],
        tasks: asyncio.TaskGroup,
        *,
        verify: bool,
        connect_timeout: float,
        idle: float,
        limit: int,
        linger: float,
        unawaited: Callable[[Line[C]], None],
    ) -> None:
        self._dial, self._tasks, self._verify, self._unawaited = dial, tasks, verify, unawaited
        self._connect_timeout, self._idle, self._limit, self._linger = connect_timeout, idle, limit, linger
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._lines: dict[Calls, Line[C]] = {}
        self._closing: dict[Line[C], asyncio.Task[None] | None] = {}
        self._evicted: Line[C] | None = None
        self._evicted_at = 0.0
        self._notice, self._waiting = Notice(), 0
        self.shut = False
        """Whether the block was left."""

    def __len__(self) -> int:
        return len(self._lines) + len(self._closing)

    # ---- for callers

    def open(self, picked: Picked, patience: float) -> Line[C] | None:
        """The line to whom was picked, dialed if none stands or is being dialed; None while there is no room, or it is
        being made (see `room`).

        Room is made by closing who was idle longest; else by giving up a dial that lasts longer than `patience`.
        """
        line = self._lines.get(picked.calls)
        if line is not None and line.ready and not self._dial.stands(line.connection):
            self.retire(line)
            line = None
        if line is None and len(self) < self._limit:
            line = self._lines[picked.calls] = Line(picked, self._clock())
            line.dialing = self._tasks.create_task(self._connect(line), name=f"dialing {line}")
        elif line is None and not self.making_room:
            evicted = self._least_wanted(patience)
            if evicted is not None:
                self._evicted, self._evicted_at = evicted, self._clock()
                evicted.dialing.cancel()
                self.retire(evicted)
                self._loop.call_later(QUICK, self._notice.tell)
        return line

    @property
    def making_room(self) -> bool:
        """Whether a connection is being closed for another one, quickly."""
        return self._evicted is not None and self._clock() - self._evicted_at < QUICK

    async def room(self, seconds: float, patience: float) -> bool:
        """Wait until there is room or some can be made, at most so many seconds; whether it is so."""
        self._waiting += 1
        try:
            return await self._notice.until(
                lambda: len(self) < self._limit or (not self.making_room and self._least_wanted(patience) is not None),
                seconds,
            )
        finally:
            self._waiting -= 1

    def leave(self, line: Line[C]) -> None:
        """A call holds it no more."""
        line.users -= 1
        if not line.users:
            line.used = self._clock()
            if line in self._closing:
                line.free.set()
            elif self._waiting:
                self._notice.tell()

    # ---- what becomes of lines

    def retire(self, line: Line[C], linger: float | None = None) -> None:
        """Nobody new gets it, and it is closed once the calls over it have ended; at the latest after `linger`."""
        if line in self._closing or self._lines.get(line.calls) is not line:
            return
        del self._lines[line.calls]
        if not line.users:
            line.free.set()
        self._closing[line] = start(self._tasks, self._close(line, linger), f"closing {line}")

    def changed(self, change: Change) -> None:
        """Retire the lines to whom is gone, and dial it no more."""
        gone, stays = change.instance.key, change.after
        for line in [line for line in self._lines.values() if line.instance.key == gone]:
            if stays is None or stays.term != line.instance.term or line.endpoint not in stays.endpoints:
                if not line.ready:
                    line.dialing.cancel()
                self.retire(line, self._linger)

    async def sweep(self) -> None:
        """Retire who was idle for too long; for ever."""
        while True:
            idle = [line for line in self._lines.values() if line.ready and not line.users]
            for line in idle:
                if self._clock() - line.used >= self._idle:
                    self.retire(line)
            oldest = min((line.used for line in idle if line not in self._closing), default=self._clock())
            await asyncio.sleep(max(oldest + self._idle - self._clock(), 0.05))

    async def close(self) -> None:
        """All of them, whatever is under way."""
        self.shut = True
        for line in [*self._lines.values(), *self._closing]:
            line.dialing.cancel()
            self.retire(line)
            line.free.set()
        closing = [task for task in self._closing.values() if task is not None]
        if closing:
            await asyncio.wait(closing)

    # ---- tasks

    async def _connect(self, line: Line[C]) -> None:
        limit = asyncio.timeout(self._connect_timeout)
        try:
            async with limit:
                line.connection = await self._dial.dial(line.instance, line.endpoint)
                line.connected = True
                if self._verify:
                    await self._ask(line)
            line.used = self._clock()
            line.ready = True
        except TimeoutError as error:
            waited = f"{line} did not answer the dial within {self._connect_timeout:g} s"
            line.error = TimeoutError(waited) if limit.expired() else error
        except Exception as error:  # noqa: BLE001  # whatever it is, those who wait for the connection are told
            line.error = error
        finally:
            if not line.ready:
                self.retire(line)
                if line.error is not None and not line.users:
                    self._unawaited(line)
            elif self._waiting:
                self._notice.tell()

    async def _ask(self, line: Line[C]) -> None:
        answered = await self._dial.identify(line.connection, line.instance, line.endpoint)
        if answered is not None and answered != str(line.instance.key):
            raise NotItself(line.instance.key, line.endpoint.address, answered)

    async def _close(self, line: Line[C], linger: float | None) -> None:
        try:
            await asyncio.wait({line.dialing})
            if line.connected:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(line.free.wait(), linger)
                async with asyncio.timeout(CLOSE_LIMIT):
                    await self._dial.close(line.connection)
        except Exception as error:  # noqa: BLE001  # it is of no more use, whatever it says
            log.debug("%s: hanging up: %r", line, error)
        finally:
            del self._closing[line]
            if line is self._evicted:
                self._evicted = None
            self._notice.tell()

    # ---- helpers

    def _least_wanted(self, patience: float) -> Line[C] | None:
        lines, late = self._lines.values(), self._clock() - patience
        idle = [line for line in lines if line.ready and not line.users]
        dialing = [line for line in lines if not line.ready and line.began <= late]
        if idle:
            return min(idle, key=lambda line: line.used)
        return min(dialing, key=lambda line: line.began) if dialing else None
