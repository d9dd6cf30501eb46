"""An event loop for a test that is no coroutine: one task in a thread, which goes on between two calls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Actor"]

T = TypeVar("T")


class Actor:
    """Runs what it is given in one and the same task, so that blocks may be entered in one call and left in another."""

    def __init__(self) -> None:
        self._jobs: asyncio.Queue[tuple[Coroutine[Any, Any, Any], Future[Any]] | None] = asyncio.Queue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="actor", daemon=True)
        self._thread.start()

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Its result, once it is done."""
        done: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, (coroutine, done))
        return done.result()

    def end(self) -> None:
        """End the task and its loop."""
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, None)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._act())

    async def _act(self) -> None:
        while (job := await self._jobs.get()) is not None:
            coroutine, done = job
            try:
                done.set_result(await coroutine)
            except Exception as error:  # noqa: BLE001  # whatever it is, it is for whoever called
                done.set_exception(error)
