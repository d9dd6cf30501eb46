"""Something to be called, in a process of its own: it listens and answers every HTTP request, until it is hit.

It is run as `python -m tests.peers.callee PORT`; `Callee` runs it. A line a connection on standard output.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.cli.programs import Running, free_port, start

__all__ = ["Callee", "callee"]


class Callee:
    """A server at one port, whose process is killed, paused and started again: `program` is run with the port and
    `arguments`."""

    def __init__(self, program: str = "tests.peers.callee", *arguments: str) -> None:
        self.port = free_port()
        self._command = [sys.executable, "-m", program, str(self.port), *arguments]
        self._running: Running | None = None
        self._before = 0

    @property
    def connections(self) -> int:
        """How many connections it took, over all its processes."""
        return self._before + (self._lines() if self._running is not None else 0)

    async def start(self) -> None:
        """Begin to listen."""
        self._running = await start(self._command, dict(os.environ))
        await self._running.prints("listening", seconds=30)

    async def prints(self, text: str) -> None:
        """Wait for a line that it prints."""
        assert self._running is not None
        await self._running.prints(text)

    def printed(self, text: str) -> int:
        """How many such lines it printed since it was started."""
        return self._running.out.count(text) if self._running is not None else 0

    async def kill(self) -> None:
        """End it with -9."""
        if self._running is not None:
            self._before += self._lines()
            running, self._running = self._running, None
            running.send(signal.SIGCONT)
            await running.stop()

    def pause(self) -> None:
        """Stop its process: the kernel goes on to take connections, nobody answers."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)

    def _send(self, sent: signal.Signals) -> None:
        assert self._running is not None
        self._running.send(sent)

    def _lines(self) -> int:
        assert self._running is not None
        return self._running.out.count("connection")


@asynccontextmanager
async def callee(program: str = "tests.peers.callee", *arguments: str) -> AsyncIterator[Callee]:
    """One that listens for as long as the block lasts, unless the test ends it."""
    one = Callee(program, *arguments)
    await one.start()
    try:
        yield one
    finally:
        await one.kill()


def main(port: int) -> None:
    """Listen for ever."""
    server = socket.create_server(("127.0.0.1", port))
    print("listening", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            print("connection", flush=True)
            try:
                if connection.recv(4096):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            except OSError:
                continue


if __name__ == "__main__":
    main(int(sys.argv[1]))
