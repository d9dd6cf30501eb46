"""`Peers`: a pick, a connection, the call, and what is done when one of them fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Generic, TypeVar

import msgspec

from adsum.clients.block import start, tasks_of_block
from adsum.clients.changes import Changes
from adsum.clients.choosing import Picked, Selection
from adsum.clients.directory import Directory
from adsum.clients.reporting import Reporting
from adsum.events.errors import AdsumError
from adsum.events.machine import is_of_this_machine
from adsum.events.numbers import check_number

from .dialing import Blame, Dialer, Peer
from .pool import Line, Pool
from .reaching import Reached, Reaching, tell_of
from .retrying import Budget, may_try_another

__all__ = ["Bounds", "Peers"]

MOST_REPORTS = 100
"""At once; those above are not sent, as most would not be anyway."""

log = logging.getLogger("adsum.peers")
C = TypeVar("C")
T = TypeVar("T")


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how much; see `Registry.peers`. Seconds, except `attempts` and `limit`."""

    timeout: float = 60.0
    grace: float = 0.0
    connect_timeout: float = 30.0
    attempts: int = 3
    idle: float = 300.0
    limit: int = 50

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            rule = "must be 0 or more" if name == "grace" else "must be above 0"
            least = (0.0).__le__ if name == "grace" else (0.0).__lt__
            check_number(name, getattr(self, name), rule, least)


class Peers(Generic[C]):
    """An async context manager, made by `Registry.peers`. Leave its block when no call is under way any more: those
    that are lose their connections. One event loop's."""

    def __init__(
        self,
        directory: Directory,
        selection: Selection,
        dial: Dialer[C],
        reporting: Reporting,
        bounds: Bounds,
        *,
        own: bool,
        verify: bool,
    ) -> None:
        self.directory, self.selection = directory, selection
        self._dial, self._reporting, self._bounds, self._own, self._verify = dial, reporting, bounds, own, verify
        self._budget = Budget()
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._tasks: asyncio.TaskGroup | None = None
        self._pool: Pool[C] | None = None
        self._reports: set[asyncio.Task[None]] = set()
        self._stack: AsyncExitStack | None = None

    def __str__(self) -> str:
        return f"peers of {self.selection.what}"

    @property
    def connections(self) -> int:
        """How many there are, those being dialed or closed included."""
        return len(self._pool) if self._pool is not None else 0

    async def call(
        self,
        fn: Callable[[Peer[C]], Awaitable[T]],
        *,
        timeout: float | None = None,
        key: str | bytes | None = None,
        idempotent: bool = False,
    ) -> T:
        """Let `fn` ask one peer, and give its answer: `await peers.call(lambda peer: peer.connection.get("/x"))`.

        `timeout`: seconds for all of it, the wait for a connection and other tries included; the block's unless given.
        `key`: for policies that choose by it. `idempotent`: twice is as good as once, so that it is also tried on
        another peer when the first one broke off and perhaps had done it. `fn` makes one request: when it makes
        several, they are all made again, and an error of any of them is taken for the peer's. It is called for each
        peer that is tried.

        Raises what `fn` raised, with notes of whom it called if that broke, and of who else was tried; Unreachable
        (NotItself) where nobody could be reached, TimeoutError with whom it waited for; and as `Selection.pick`:
        NoneRegistered, NoneRoutable, NotLoaded.
        """
        reaching = self._reach(timeout, key)
        self._budget.earn()
        attempts = self._bounds.attempts
        try:
            while True:
                reached = await reaching.somebody()
                limit = asyncio.timeout_at(reaching.ends + self._bounds.grace)
                try:
                    async with limit:
                        answer = await fn(self._peer(reached, reaching))
                except Exception as error:
                    told, blame = self._judged(reaching, reached, error, limit)
                    attempts -= blame is not Blame.UNREACHABLE
                    if not self._again(blame, idempotent, attempts, reaching):
                        reaching.note(told)
                        if blame is Blame.BROKEN:
                            told.add_note(f"called was {reached.line}; perhaps it was done")
                        if told is error:
                            raise
                        raise told from error
                    reaching.errors.append(told)
                except BaseException:
                    reached.call.abandoned()
                    raise
                else:
                    self._answered(reached)
                    return answer
                finally:
                    reaching.leave(reached)
        finally:
            reaching.end()

    @asynccontextmanager
    async def using(self, *, timeout: float | None = None, key: str | bytes | None = None) -> AsyncIterator[Peer[C]]:
        """One peer for as long as a block runs, for streams or several calls to the same one:

            async with peers.using() as peer: …

        `timeout` is for reaching one, and raises as `call` does; from then on nothing is tried again, no time is
        taken, and what the block raises comes out as it is.
        """
        reaching = self._reach(timeout, key)
        try:
            reached = await reaching.somebody()
            try:
                yield self._peer(reached, reaching)
            except Exception as error:
                self._judged(reaching, reached, error, None)
                raise
            except BaseException:
                reached.call.abandoned()
                raise
            else:
                self._answered(reached)
            finally:
                reaching.leave(reached)
        finally:
            reaching.end()

    # ---- how it went

    def _reach(self, timeout: float | None, key: str | bytes | None) -> Reaching[C]:
        if self._pool is None:
            raise RuntimeError("enter the peers first, and call within their block: async with registry.peers(…) as …")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(f"the {self} are of another event loop: make others in this one")
        seconds = self._bounds.timeout if timeout is None else timeout
        return Reaching(self.selection, self._pool, self._report, self._dial.blame, key, seconds)

    def _peer(self, reached: Reached[C], reaching: Reaching[C]) -> Peer[C]:
        picked, left = reached.picked, reaching.ends - self._clock()
        return Peer(reached.line.connection, picked.instance, picked.endpoint, left if left > 0 else 0.0)

    def _answered(self, reached: Reached[C]) -> None:
        reached.line.answered = self._clock()
        reached.call.succeeded()

    def _judged(
        self, reaching: Reaching[C], reached: Reached[C], error: Exception, limit: asyncio.Timeout | None
    ) -> tuple[Exception, Blame]:
        """What the caller is told, and whose fault it was; the connection is thrown away if it is of no more use."""
        told, blame = reaching.judge(reached.line, error)
        late = limit is not None and limit.expired()
        if late:
            waited = reaching.seconds + self._bounds.grace
            told, blame = TimeoutError(f"{reached.line} did not answer within {waited:g} s"), Blame.BROKEN
        if told is not error:
            told.__cause__ = error
        if blame is Blame.ANSWERED:
            self._answered(reached)
            return told, blame
        if blame is Blame.UNREACHABLE and is_of_this_machine(error):
            reached.call.abandoned()
            return told, blame
        if blame is Blame.UNREACHABLE and reaching.found_it_gone(reached, error):
            reached.call.abandoned()
            reaching.retire(reached)
            return told, blame
        reached.call.failed()
        only_slow = late and reached.line.answered > reached.began  # others had answers over it meanwhile
        if blame is not Blame.DECLINED and not only_slow:
            reaching.retire(reached)
            self._report(reached.picked, told)
        return told, blame

    def _again(self, blame: Blame, idempotent: bool, attempts: int, reaching: Reaching[C]) -> bool:
        left = reaching.ends - self._clock()
        if not may_try_another(blame, idempotent=idempotent, attempts_left=attempts, seconds_left=left):
            return False
        return blame is Blame.UNREACHABLE or self._budget.spend()

    def _unawaited(self, line: Line[C]) -> None:
        tell_of(line, self.selection.begun(line.picked), self._dial.blame, self._report)

    def _report(self, picked: Picked, error: Exception) -> None:
        """Tell adsumd that a peer could not be reached; no call waits for it."""
        if self._pool is None or self._tasks is None or len(self._reports) >= MOST_REPORTS:
            return
        reason = f"{type(error).__name__}: {error}"
        task = start(self._tasks, self._send_report(picked, reason), f"reporting {picked.name}")
        if task is not None:
            self._reports.add(task)
            task.add_done_callback(self._reports.discard)

    async def _send_report(self, picked: Picked, reason: str) -> None:
        try:
            await self._reporting.report(picked.instance, picked.endpoint.name, reason, 0.0)
        except AdsumError as error:
            log.debug("%s: not reported: %s", picked.name, error)

    # ---- life

    async def __aenter__(self) -> Peers[C]:
        if self._stack is not None:
            raise RuntimeError("peers are entered once; make others")
        bounds = self._bounds
        async with AsyncExitStack() as stack:
            if self._own:
                await stack.enter_async_context(self.directory)
            self._tasks = tasks = await stack.enter_async_context(tasks_of_block())
            self._pool = pool = Pool(
                self._dial,
                tasks,
                verify=self._verify,
                connect_timeout=bounds.connect_timeout,
                idle=bounds.idle,
                limit=bounds.limit,
                linger=bounds.timeout + bounds.grace,
                unawaited=self._unawaited,
            )
            loops = [
                tasks.create_task(pool.sweep(), name=f"{self}: idle ones"),
                tasks.create_task(self._follow(pool, self.directory.changes(initial=False)), name=f"{self}: changes"),
            ]
            stack.push_async_callback(self._close, pool, loops)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._stack is not None
        return await self._stack.__aexit__(kind, error, trace)

    async def _follow(self, pool: Pool[C], changes: Changes) -> None:
        async for change in changes:
            pool.changed(change)

    async def _close(self, pool: Pool[C], loops: list[asyncio.Task[None]]) -> None:
        self._pool = None
        for task in [*loops, *self._reports]:
            task.cancel()
        await pool.close()
