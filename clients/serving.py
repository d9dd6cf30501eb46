"""`serving()`: a registration that fits a server which has hooks for its start and its end, such as an ASGI lifespan.

Such servers run the first hook before they listen and the last one after they have stopped to; a registry wants it the
other way round. So the instance is registered behind, once its port is open, and the signal that stops the server is
held back until nobody calls it any more.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

from .errors import LifeEnded
from .port import LOCAL, accepts, opened
from .registration import SETTLE, Registration

__all__ = ["serving"]

PATIENCE = 5.0
"""Seconds without an open port after which that is said, once."""
OWN = 1.0
"""Seconds that the block must last before a port that was open already is taken for the server's own."""

log = logging.getLogger("adsum.serving")


@asynccontextmanager
async def serving(registration: Registration, *, settle: float = SETTLE) -> AsyncIterator[Registration]:
    """Registered while a server serves, whose hooks for its start and its end are the two ends of the block:

        async with connect() as registry, serving(registry.register("orders", port=8080)) as me:
            yield

    The block begins at once; the registration follows when the port of its first endpoint takes connections. On SIGTERM
    it is drained first (see `Registration.drain`, also for `settle`); then the signal goes to the server's own handler,
    which has to be there before the block begins, by `signal.signal`, as uvicorn's is. A second SIGTERM goes there at
    once, and so does Ctrl-C. The server finishes its calls, ends the block, and is deregistered. Enters `registration`
    itself.
    """
    place = _Place(registration)
    await place.look()
    with _HeldBack(registration, settle):
        present = asyncio.create_task(place.hold(), name=f"{registration.key}: serving")
        present.add_done_callback(lambda over: _tell(registration, over))
        try:
            yield registration
        finally:
            place.leaving.set()
            await present


class _Place:
    """Where the server listens, and being registered there."""

    def __init__(self, registration: Registration) -> None:
        self._me, self.leaving = registration, asyncio.Event()
        self._taken = False

    async def look(self) -> None:
        """Whether somebody listens there before the server does."""
        self._taken = await accepts(self._hosts(), self._port) is not None

    async def hold(self) -> None:
        """Be registered from when the server listens until it is to be left."""
        waiting = asyncio.create_task(self._open())
        leaving = asyncio.create_task(self.leaving.wait())
        try:
            await asyncio.wait([waiting, leaving], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not (waiting.done() or leaving.done()):
                log.warning("%s: nothing accepts connections at port %d yet", self._me.key, self._port)
                await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not leaving.done():
                async with self._me:
                    await leaving
        finally:
            waiting.cancel()
            leaving.cancel()
            await asyncio.gather(waiting, leaving, return_exceptions=True)

    async def _open(self) -> None:
        if self._taken:
            await asyncio.sleep(OWN)
        await opened(self._hosts, self._port)

    @property
    def _port(self) -> int:
        return self._me.description.endpoints[0].port

    def _hosts(self) -> list[str]:
        return [*dict.fromkeys([self._me.host, *LOCAL])]


class _HeldBack:
    """SIGTERM, for as long as a block runs: first the instance is drained, then it goes to whom it would have gone.

    Only in the main thread, as signals are nobody else's; elsewhere it does nothing.
    """

    def __init__(self, registration: Registration, settle: float) -> None:
        self._me, self._settle = registration, settle
        self._loop = asyncio.get_running_loop()
        self._before: Any = None
        self._draining: asyncio.Task[None] | None = None
        self._came = False

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._hear)

    def __exit__(self, *_: object) -> None:
        if self._draining is not None:
            self._draining.cancel()
        self._restore()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        again, self._came = self._came, True
        self._loop.call_soon_threadsafe(self._hand_on if again else self._begin)

    def _begin(self) -> None:
        self._draining = asyncio.create_task(self._drain(), name=f"{self._me.key}: draining")

    async def _drain(self) -> None:
        try:
            if self._me.state == "registered":
                await self._me.drain("stopping", settle=self._settle)
        except LifeEnded as end:
            log.info("not drained: %s", end)
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        if self._restore():
            signal.raise_signal(signal.SIGTERM)

    def _restore(self) -> bool:
        """Whether the signal was still held back."""
        held = signal.getsignal(signal.SIGTERM) == self._hear
        if held:
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
        return held


def _tell(registration: Registration, over: asyncio.Task[None]) -> None:
    """The block goes on when its registration ends of a bug, and raises that in the end; it is said at once."""
    if not over.cancelled() and over.exception() is not None:
        log.error("%s: no longer registered: %r", registration.key, over.exception())
