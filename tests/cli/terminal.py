"""A terminal for a program, driven like a person would."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import termios
from collections.abc import Mapping, Sequence

from tests.cli.programs import hear_all
from tests.waiting import until


def _begin() -> None:
    hear_all()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A program that has a terminal of its own, as the leader of a session with its foreground process group."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.pid, self._process, self._master = process.pid, process, master
        self._seen = bytearray()
        asyncio.get_running_loop().add_reader(master, self._read)

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], columns: int) -> Terminal:
        """Run `command` in a terminal of that width."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**env, "TERM": "xterm", "COLUMNS": str(columns)},
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                preexec_fn=_begin,
            )
        finally:
            os.close(slave)
        return cls(process, master)

    @property
    def screen(self) -> str:
        """All that was printed so far."""
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    async def shows(self, text: str, seconds: float = 10.0) -> None:
        """Wait until `text` was printed."""
        await until(lambda: self.screen, lambda screen: text in screen, seconds)

    def type(self, text: str) -> None:
        """Type; "\\x03" is Ctrl-C."""
        os.write(self._master, text.encode())

    async def code(self, seconds: float = 15.0) -> int:
        """The exit code, once it has ended."""
        async with asyncio.timeout(seconds):
            return await self._process.wait()

    async def close(self) -> None:
        """End it, if it still runs."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)

    def _read(self) -> None:
        try:
            self._seen += os.read(self._master, 65536)
        except OSError:  # the last one that had the terminal open has gone
            asyncio.get_running_loop().remove_reader(self._master)
