"""A child process that runs one coroutine function, and a pipe to it.

All processes of a machine read one monotonic clock (`time.monotonic`), so what one notes another may subtract.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import uvloop

__all__ = ["Child", "Pipe"]

SILENT_LIMIT = 180.0
_context = multiprocessing.get_context("spawn")


class Pipe:
    """The child's end, the first argument of its function."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def tell(self, message: object = None) -> None:
        """Hand something to the parent."""
        self._connection.send(message)

    async def hear(self) -> Any:
        """The next thing that the parent says. Raises EOFError once it is gone."""
        return await asyncio.to_thread(self._connection.recv)


class Child:
    """`async with Child(function, size=3) as child`: `function(pipe, size=3)` runs until it ends or the block does."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, None]], **arguments: object) -> None:
        self._connection, self._other = _context.Pipe()
        self._process = _context.Process(target=_run, args=(function, self._other, arguments), daemon=True)

    async def __aenter__(self) -> Child:
        self._process.start()
        self._other.close()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        await asyncio.to_thread(self._process.join)
        self._connection.close()

    def tell(self, message: object = None) -> None:
        """Hand something to the child."""
        self._connection.send(message)

    async def hear(self, timeout: float = SILENT_LIMIT) -> Any:
        """The next thing that the child says. Raises RuntimeError with its traceback if it failed."""
        if not await asyncio.to_thread(self._connection.poll, timeout):
            raise TimeoutError(f"{self._process.name} said nothing for {timeout:g} s")
        message = self._connection.recv()
        if isinstance(message, _Failure):
            raise RuntimeError(f"a child failed:\n{message}")
        return message

    async def ask(self, message: object = None, timeout: float = SILENT_LIMIT) -> Any:
        """Say something and wait for what comes back."""
        self.tell(message)
        return await self.hear(timeout)

    def waiting(self) -> list[Any]:
        """What it has said and nobody has heard yet; works on a child that was killed too."""
        heard = []
        with suppress(EOFError, OSError):
            while self._connection.poll(0):
                heard.append(self._connection.recv())
        return heard

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        self._process.kill()


class _Failure(str):
    """The traceback of a child that failed."""


def _run(function: Callable[..., Coroutine[Any, Any, None]], connection: Connection, arguments: dict[str, Any]) -> None:
    logging.disable()  # what goes wrong is told in the figures
    try:
        uvloop.run(function(Pipe(connection), **arguments))
    except (EOFError, KeyboardInterrupt):
        pass
    except BaseException:  # noqa: BLE001  # whatever it was: the parent is told
        with suppress(OSError):
            connection.send(_Failure(traceback.format_exc()))
    os._exit(0)  # threads of client libraries must not hold it
