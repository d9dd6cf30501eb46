"""Running a command against the broker: the connection for as long as the command lasts."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from adsum.clients.errors import LifeEnded
from adsum.events.broker import Broker
from adsum.events.errors import AdsumError, BrokerUnavailable

from .options import Where
from .output import PipeClosed, hung_up, note

__all__ = ["DEBUG", "Failed", "heard", "reading", "ready", "run", "while_read"]

T = TypeVar("T")
HANG_UP_POLL = 0.25
DEBUG = "ADSUM_DEBUG"
"""With this set in the environment an error shows where it comes from."""


class Failed(AdsumError):
    """What was asked for could not be done; the message is for the person who asked."""


def run(main: Coroutine[Any, Any, T], long: bool = False) -> T:
    """Run a command's coroutine to its end. An error that left a block of the library is raised as it was.

    `long`: it is worth the start of a faster loop, where one is installed.
    """
    try:
        with asyncio.Runner(loop_factory=_faster_loop() if long else None) as runner:
            return runner.run(main)
    except BaseExceptionGroup as group:
        raise _only(group) from None


@asynccontextmanager
async def reading(where: Where) -> AsyncIterator[Broker]:
    """A connection that stands. Raises BrokerUnavailable if there is none within the command's timeout."""
    broker = Broker.open(where.settings, f"adsum {os.getpid()}")
    try:
        await ready(broker, where.timeout)
        yield broker
    finally:
        await broker.close()


async def ready(broker: Broker, timeout: float) -> None:
    """Wait until connected; an error says what to do about it. Raises BrokerUnavailable, BrokerRefused."""
    try:
        await broker.ready(timeout)
    except BrokerUnavailable as error:
        raise BrokerUnavailable(f"{error}; is adsumd running there? --nats URL names another broker") from None


async def while_read(work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives, unless whoever reads standard output has gone before: then PipeClosed."""
    working = asyncio.create_task(work)
    try:
        while not working.done():
            await asyncio.wait([working], timeout=HANG_UP_POLL)
            if not working.done() and hung_up():
                raise PipeClosed("nobody reads standard output any more")
        return working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def heard(outages: bool) -> None:
    """Show the warnings of the libraries, one line each, as the command's own notes.

    `outages`: also when the connection is lost and made. A command that waits for it only once tells in its error.
    """
    logging.basicConfig(level=logging.WARNING, handlers=[_Notes()], force=True)
    logging.getLogger("adsum.broker").setLevel(logging.INFO if outages else logging.CRITICAL + 1)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and any(isinstance(said, LifeEnded) for said in record.args):
            return  # whoever runs the registration says that it ended, and what follows from it
        note(record.getMessage())
        if record.exc_info and os.environ.get(DEBUG):
            sys.stderr.write(logging.Formatter().formatException(record.exc_info) + "\n")


def _faster_loop() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a group of one error is about; else the group itself."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner
