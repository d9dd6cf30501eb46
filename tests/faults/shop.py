"""A small HTTP server as a program, deployed as a registered service should be.

shop.py URL SERVICE: it listens at a free port, registers, serves. SIGTERM: it drains, goes on serving meanwhile so
that callers who have not heard of it yet are still answered, finishes what is in flight, says goodbye, exits.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from adsum.clients import connect

WORK = 0.1
"""Seconds that a call takes."""


class Shop:
    """Answers every request with its id."""

    def __init__(self) -> None:
        self.id = ""
        self.in_flight: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One call."""
        call = asyncio.current_task()
        assert call is not None
        self.in_flight.add(call)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(WORK)  # what the call does
            body = self.id.encode()
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            await writer.drain()
        finally:
            writer.close()
            self.in_flight.discard(call)


async def main(url: str, service: str) -> None:
    """Serve until SIGTERM."""
    stopped, shop = asyncio.Event(), Shop()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = await asyncio.start_server(shop.answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with connect(url) as registry, registry.register(service, port=port, host="127.0.0.1") as me:
        shop.id = me.id
        print(me.id, flush=True)
        await stopped.wait()
        await me.drain("a new version")
        server.close()
        await asyncio.gather(*shop.in_flight)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
