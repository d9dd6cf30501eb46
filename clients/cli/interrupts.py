"""Signals as a queue, each with whether the child has it already.

A terminal sends Ctrl-C to its whole foreground process group, so the child has it too; `kill` sends to one process.
The kernel tells which it was (sigaction(2), si_code: above zero for the kernel itself), and forwarding depends on it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple

__all__ = ["ENDING", "PASSED_ON", "Interrupt", "Interrupts"]

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Those that mean: stop."""
PASSED_ON = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Those that often mean something else to a server (read the configuration again, open the log anew)."""


class Interrupt(NamedTuple):
    """A signal that came. `shared`: the terminal sent it to the child as well."""

    signal: signal.Signals
    shared: bool


class Interrupts:
    """A context manager that takes signals out of Python's hands and into a queue, until the process ends.

    Enter it in the main thread while there is no other. What was ignored (nohup, `&` in a script) stays so.
    """

    def __init__(self, wanted: Iterable[signal.Signals]) -> None:
        self.taken = frozenset(one for one in wanted if signal.getsignal(one) != signal.SIG_IGN)
        self._arrived: asyncio.Queue[Interrupt] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: threading.Thread | None = None

    def __enter__(self) -> Interrupts:
        loop = self._loop = asyncio.get_running_loop()
        if hasattr(signal, "sigwaitinfo"):
            signal.pthread_sigmask(signal.SIG_BLOCK, self.taken)  # what comes now waits for `next`
            self._listener = threading.Thread(target=self._listen, name="interrupts", daemon=True)
        else:
            for one in self.taken:
                loop.add_signal_handler(one, self._guess, one)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop = None  # they stay blocked: the process is about to end, with an exit code of its own choice

    async def next(self) -> Interrupt:
        """The next signal that came. The first call starts a thread: fork before it."""
        if self._listener is not None and not self._listener.is_alive():
            self._listener.start()
        return await self._arrived.get()

    def _listen(self) -> None:
        while True:
            info = signal.sigwaitinfo(self.taken)
            loop = self._loop
            if loop is None:
                return
            interrupt = Interrupt(signal.Signals(info.si_signo), shared=info.si_code > 0)
            loop.call_soon_threadsafe(self._arrived.put_nowait, interrupt)

    def _guess(self, one: signal.Signals) -> None:
        """Without siginfo: SIGINT and SIGQUIT of the foreground process group are taken for the terminal's."""
        shared = one in (signal.SIGINT, signal.SIGQUIT) and _in_foreground()
        self._arrived.put_nowait(Interrupt(one, shared))


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)
