"""What a process of a soak is told while it runs: one word a line on its standard input, SIGTERM to end politely."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Commands", "commands"]


class Commands:
    """`stop` is set once it is to end; `busy` is clear while it is to change nothing."""

    def __init__(self) -> None:
        self.stop, self.busy = asyncio.Event(), asyncio.Event()
        self.busy.set()

    def obey(self, word: str) -> None:
        """quiet, busy, or the end of the input: whoever started it is gone."""
        if word == "quiet":
            self.busy.clear()
        elif word == "busy":
            self.busy.set()
        else:
            self.stop.set()

    async def pause(self, seconds: float) -> bool:
        """Wait so long, or until it is to end; whether it may go on."""
        try:
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def commands() -> AsyncIterator[Commands]:
    """Listen for as long as the block runs."""
    heard = Commands()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, heard.stop.set)
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def listen() -> None:
        while not heard.stop.is_set():
            heard.obey((await reader.readline()).decode().strip())

    listening = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        listening.cancel()
        transport.close()
