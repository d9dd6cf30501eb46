"""One caller on the way to a peer: whom it picked, whose connection it waits for, who failed it so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from adsum.clients.choosing import Call, Picked, Selection
from adsum.clients.errors import NobodyToCall, NotItself, Unreachable
from adsum.events.machine import is_of_this_machine
from adsum.events.numbers import check_number

from .dialing import Blame
from .pool import Line, Pool
from .retrying import is_overdue, patience

__all__ = ["Reached", "Reaching", "tell_of"]

MOST_NOTES = 10
"""Peers who were tried in vain that one error tells of."""

C = TypeVar("C")


class Reached(Generic[C]):
    """One who was picked and the line to it, which the caller holds. `late`: the caller has counted it as failed."""

    __slots__ = ("began", "call", "late", "line", "picked")

    def __init__(self, picked: Picked, line: Line[C], call: Call, began: float) -> None:
        self.picked, self.line, self.call, self.began, self.late = picked, line, call, began, False


class Reaching(Generic[C]):
    """Everybody is tried once at most. A dial is waited for only so long (see `patience`) before somebody else is
    picked too; then whoever comes first is taken. `seconds`: for all of it. `end` it, always."""

    __slots__ = (
        "_began",
        "_blame",
        "_clock",
        "_key",
        "_pool",
        "_report",
        "_selection",
        "_tried",
        "_waiting",
        "ends",
        "errors",
        "seconds",
    )

    def __init__(
        self,
        selection: Selection,
        pool: Pool[C],
        report: Callable[[Picked, Exception], None],
        blame: Callable[[Exception], Blame],
        key: str | bytes | None,
        seconds: float,
    ) -> None:
        check_number("timeout", seconds, "must be a positive number of seconds", lambda s: s > 0)
        self._selection, self._pool, self._report, self._blame, self._key = selection, pool, report, blame, key
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self.seconds, self.ends = seconds, self._began + seconds
        self.errors: list[Exception] = []
        """What those said who were tried in vain."""
        self._tried: list[Picked] = []
        self._waiting: dict[Line[C], Reached[C]] = {}

    async def somebody(self) -> Reached[C]:
        """The next one to whom there is a connection; `leave` it. Raises as `Peers.call`."""
        wanted: Picked | None = None
        while True:
            if self._pool.shut:
                raise RuntimeError("the block of these peers was left")
            wanted = wanted or self._pick()
            newest = self._begin(wanted) if wanted is not None else None
            if newest is not None and newest.line.ready:
                return newest
            if newest is not None:
                self._waiting[newest.line] = newest
            no_room = wanted is not None and newest is None
            room, being_made = self._room() if no_room else None, self._pool.making_room
            ready = await self._first(newest, room)
            if ready is not None:
                return ready
            if room is None or (room.done() and not being_made) or wanted not in self._selection.members:
                wanted = None  # by now the policy may see another one, or this one is to be called no more

    def found_it_gone(self, reached: Reached[C], error: Exception) -> bool:
        """Whether a connection that was kept from before is no more, which says nothing of the peer: it may be dialed.

        It is tried once more, with a connection that is new.
        """
        if reached.line.began >= self._began or isinstance(error, NotItself):
            return False
        self._tried.remove(reached.picked)
        return True

    def retire(self, reached: Reached[C]) -> None:
        """Its connection is of no more use."""
        self._pool.retire(reached.line)

    def leave(self, reached: Reached[C]) -> None:
        """The call to it is over."""
        self._pool.leave(reached.line)

    def end(self) -> None:
        """The caller waits for nobody any more; the dials go on behind."""
        for line, reached in self._waiting.items():
            if line.dialing.done() and not line.ready:
                self._tell(reached)
            else:
                reached.call.abandoned()
            self.leave(reached)
        self._waiting.clear()

    def note(self, error: Exception) -> None:
        """Let an error tell who else was tried, the last of them by name."""
        others = [other for other in self.errors if other is not error]
        if len(others) > MOST_NOTES:
            error.add_note(f"{len(others)} were tried before, of whom these were the last:")
        for other in others[-MOST_NOTES:]:
            error.add_note(f"tried before: {type(other).__name__}: {other}")

    def judge(self, line: Line[C], error: Exception) -> tuple[Exception, Blame]:
        """What to tell of an error of a call, and whose fault it was.

        One about somebody else, who was called meanwhile, says nothing of this peer; of a group, nobody knows what was
        done.
        """
        if isinstance(error, ExceptionGroup):
            blames = {self.judge(line, one)[1] for one in error.exceptions}
            return error, Blame.BROKEN if blames & {Blame.BROKEN, Blame.UNREACHABLE} else Blame.ANSWERED
        if isinstance(error, NotItself):
            own = (error.key, error.address) == (line.instance.key, line.endpoint.address)
            return error, Blame.UNREACHABLE if own else Blame.ANSWERED
        blame = Blame.BROKEN if isinstance(error, TimeoutError) else self._blame(error)
        if blame is Blame.UNREACHABLE:
            return Unreachable(line.instance.key, line.endpoint.address, _words(error)), blame
        return error, blame

    # ---- picking

    def _pick(self) -> Picked | None:
        """Somebody who was not tried yet; None where there is nobody else, and some are waited for."""
        if self.errors and not self._waiting and self._clock() >= self.ends:
            raise self._last()
        try:
            picked = self._selection.pick(self._key, avoid=self._tried)
        except NobodyToCall as nobody:
            if self._waiting:
                return None
            if not self.errors:
                raise
            last = self._last()
            last.add_note(str(nobody))
            raise last from last.__cause__
        self._pass_over()
        return picked

    def _last(self) -> Exception:
        last = self.errors[-1]
        self.note(last)
        return last

    def _begin(self, picked: Picked) -> Reached[C] | None:
        line = self._pool.open(picked, patience(self.seconds))
        if line is None:
            return None
        self._tried.append(picked)
        line.users += 1
        return Reached(picked, line, self._selection.begun(picked), self._clock())

    def _room(self) -> asyncio.Task[bool]:
        name = f"waiting for room of {self._selection.what}"
        return asyncio.create_task(self._pool.room(self.seconds, patience(self.seconds)), name=name)

    # ---- waiting

    async def _first(self, newest: Reached[C] | None, room: asyncio.Task[bool] | None) -> Reached[C] | None:
        """The first line that is ready; None where it is time to look for somebody else, or whether there is room."""
        until = self.ends
        if newest is not None:
            until = min(until, newest.line.began + patience(until - self._clock()))
        elif room is not None:
            until = min(until, self._clock() + patience(self.seconds))
        try:
            while True:
                now = self._clock()
                if now >= self.ends:
                    raise self._too_late()
                awaited = [line.dialing for line in self._waiting] + ([room] if room is not None else [])
                await asyncio.wait(awaited, timeout=max(until - now, 0.0), return_when=asyncio.FIRST_COMPLETED)
                ready = self._ready()
                others = newest is None or newest.line not in self._waiting
                if ready is not None or others or self._clock() >= until:
                    return ready
        finally:
            if room is not None:
                room.cancel()

    def _ready(self) -> Reached[C] | None:
        for line, reached in list(self._waiting.items()):
            if line.dialing.done():
                del self._waiting[line]
                if line.ready:
                    if reached.late:
                        reached.call = self._selection.begun(reached.picked)
                    return reached
                self._failed(reached)
        return None

    def _failed(self, reached: Reached[C]) -> None:
        """Its dial ended in vain. Raises what is no fault of the peer."""
        self.leave(reached)
        told, blame = self._tell(reached)
        cause = reached.line.error
        if cause is not None and blame is Blame.ANSWERED:
            raise cause
        self.errors.append(told)

    def _tell(self, reached: Reached[C]) -> tuple[Exception, Blame]:
        return tell_of(reached.line, reached.call, self._blame, self._report)

    def _pass_over(self) -> None:
        """Those who are waited for are too slow for this caller. That is their fault only when their time is over."""
        for line, reached in self._waiting.items():
            waited = self._clock() - line.began
            if not reached.late and is_overdue(waited):
                reached.late = True
                reached.call.failed()
                self._report(reached.picked, TimeoutError(f"no answer to the dial within {waited:.1f} s"))

    def _too_late(self) -> TimeoutError:
        why = "all connections are in use"
        if self._waiting:
            why = f"no answer to the dial of {', '.join(map(str, self._waiting))}"
        self._pass_over()
        error = TimeoutError(f"nobody of {self._selection.what} was reached within {self.seconds:g} s: {why}")
        self.note(error)
        return error


def tell_of(
    line: Line[C], call: Call, blame: Callable[[Exception], Blame], report: Callable[[Picked, Exception], None]
) -> tuple[Exception, Blame]:
    """Of a dial that ended in vain: what a caller is told, and whose fault it was. The peer has none where this machine
    has no socket or no network left."""
    told, fault = _afresh(line, line.error), Blame.UNREACHABLE
    if line.error is not None and not isinstance(told, NotItself | TimeoutError):
        fault = blame(line.error)
    if line.error is None or fault is Blame.ANSWERED or is_of_this_machine(line.error):
        call.abandoned()
    else:
        call.failed()
        if fault is not Blame.DECLINED:
            report(line.picked, told)
    return told, fault


def _afresh(line: Line[C], cause: Exception | None) -> Exception:
    """What one of those who waited for the same dial is told: an error of its own."""
    if isinstance(cause, NotItself):
        return NotItself(cause.key, cause.address, cause.answered)
    if isinstance(cause, TimeoutError):
        return TimeoutError(str(cause))
    told = Unreachable(line.instance.key, line.endpoint.address, _words(cause) if cause else "the dial was given up")
    told.__cause__ = cause
    return told


def _words(error: Exception) -> str:
    """Of where it came from: libraries wrap what the system said into less."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return str(error) or type(error).__name__
