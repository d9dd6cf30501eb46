"""A program of any language as a child: started as a shell would start it, ended when its parent is.

It keeps the terminal, the process group and the three streams of its parent, so that interactive programs, job control
(Ctrl-Z, fg) and pipes work as if it had been started alone.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence

from adsum.events.errors import AdsumError

__all__ = ["CannotStart", "Child", "ending_of"]

NOT_EXECUTABLE = 126
NOT_FOUND = 127
_PR_SET_PDEATHSIG = 1


class CannotStart(AdsumError):
    """COMMAND is not there (`exit_code` 127) or cannot be run (126), as in a shell."""

    def __init__(self, program: str, why: str, exit_code: int) -> None:
        self.program, self.exit_code = program, exit_code
        super().__init__(f"{program}: {why}")


class Child:
    """A running program. `exited` is done once it has ended and gives the exit code, 128 + n after signal n."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process
        self.exited: asyncio.Task[int] = asyncio.create_task(self._wait(), name="child")

    @classmethod
    async def start(
        cls, command: Sequence[str], blocked: Collection[signal.Signals], environment: Mapping[str, str]
    ) -> Child:
        """Run `command`; `blocked` are signals that this process blocks and the child must not. Raises CannotStart."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command, env=environment, preexec_fn=_die_with_parent(blocked)
            )
        except OSError as error:
            raise _cannot_start(command[0], error) from None
        return cls(process)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as is known."""
        return not self.exited.done()

    @property
    def ending(self) -> str:
        """How it ended: "exit 3", "signal 9 (SIGKILL)"; "" while it runs."""
        return ending_of(self._process.returncode) if not self.running else ""

    def send(self, sent: signal.Signals) -> None:
        """Send it a signal; harmless once it has ended."""
        if self._process.returncode is None:
            self._process.send_signal(sent)

    async def _wait(self) -> int:
        code = await self._process.wait()
        return 128 - code if code < 0 else code


def ending_of(returncode: int | None) -> str:
    """A return code of `subprocess` in words. Pure."""
    if returncode is None or returncode >= 0:
        return f"exit {returncode}" if returncode is not None else ""
    try:
        return f"signal {-returncode} ({signal.Signals(-returncode).name})"
    except ValueError:  # a real-time signal has no name
        return f"signal {-returncode}"


def _die_with_parent(blocked: Collection[signal.Signals]) -> Callable[[], None]:
    """What the child does before its program starts.

    SIGKILL at the parent's death, since a program that outlived it would go on unregistered and unwatched. The signal
    comes when the forking *thread* ends, so only the main thread may start a child. Linux only; a set-uid program
    loses it.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != parent:  # it died between the fork and the prctl
                os.kill(os.getpid(), signal.SIGKILL)

    return prepare


def _cannot_start(program: str, error: OSError) -> CannotStart:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if os.path.isfile(program):
            return CannotStart(program, "the interpreter in its first line was not found", NOT_EXECUTABLE)
        return CannotStart(program, "command not found", NOT_FOUND)
    if error.errno == errno.ENOEXEC:
        return CannotStart(program, "is no program (no #! line, or built for another machine)", NOT_EXECUTABLE)
    if os.path.isdir(program):
        return CannotStart(program, "is a directory", NOT_EXECUTABLE)
    return CannotStart(program, error.strerror or str(error), NOT_EXECUTABLE)
