"""A TCP proxy of the tests' own on loopback, that cuts, delays, and swallows what goes through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

__all__ = ["Direction", "Proxy", "proxy_to"]

Direction: TypeAlias = Literal["up", "down"]
"""up: from the client to the server; down: back."""

CHUNK = 65536
_BOTH: tuple[Direction, ...] = ("up", "down")


class Proxy:
    """Listens on a port of its own and carries every connection to `target`, whatever server that is.

    `delay`: seconds by which each chunk is held up, for each direction. `blackhole` loses nothing: the bytes wait, as
    they do in a network that drops packets, and go on once `heal` is called, or are lost with the connection. What a
    client sent before it closed goes on too, late.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._open: dict[Direction, asyncio.Event] = {way: asyncio.Event() for way in _BOTH}
        self._connections: set[asyncio.Task[None]] = set()
        self._refusing = False
        self._hold_at: dict[Direction, bytes] = {}
        self.delay: dict[Direction, float] = dict.fromkeys(_BOTH, 0.0)
        self.carried: dict[Direction, int] = dict.fromkeys(_BOTH, 0)
        self.port = 0
        self.heal()

    @property
    def url(self) -> str:
        """The proxied server, for a NATS client."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are carried now."""
        return len(self._connections)

    def blackhole(self, *ways: Direction) -> None:
        """Let nothing through any more, both ways unless one is named; connections stay open, new ones hang."""
        for way in ways or _BOTH:
            self._open[way].clear()

    def hold_at(self, pattern: bytes, way: Direction = "up") -> None:
        """`blackhole(way)` as soon as `pattern` comes, before it goes through; see `holds`."""
        self._hold_at[way] = pattern

    def holds(self, way: Direction = "up") -> bool:
        """Whether nothing goes through this way."""
        return not self._open[way].is_set()

    def release(self, way: Direction) -> None:
        """Let through what waits this way, and what comes."""
        self._open[way].set()

    def cut(self) -> None:
        """Reset every connection and refuse new ones until `heal`."""
        self._refusing = True
        self.drop()

    def drop(self) -> None:
        """Reset every connection; new ones are carried."""
        for connection in self._connections:
            connection.cancel()

    def lead_to(self, port: int) -> None:
        """Carry new connections to another server."""
        self._port = port

    def heal(self) -> None:
        """Carry everything again, without delay."""
        self._refusing = False
        self._hold_at.clear()
        self.delay = dict.fromkeys(_BOTH, 0.0)
        for way in _BOTH:
            self._open[way].set()

    async def start(self) -> Proxy:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        """Listen no more and end every connection."""
        if self._server is not None:
            self._server.close()
        self.drop()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._carry(reader, writer), name="proxied connection")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await self._open["up"].wait()
            to_reader, to_writer = await asyncio.open_connection(self._host, self._port)
            writers.append(to_writer)
            ways = [
                asyncio.ensure_future(self._pump("up", reader, to_writer)),
                asyncio.ensure_future(self._pump("down", to_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            return  # the server is not there: the client's connection is reset like its own would be
        finally:
            for one in writers:
                one.transport.abort()

    async def _pump(self, way: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            if way in self._hold_at and self._hold_at[way] in chunk:
                del self._hold_at[way]
                self.blackhole(way)
            if self.delay[way]:
                await asyncio.sleep(self.delay[way])  # the delay that the test asked for
            await self._open[way].wait()
            writer.write(chunk)
            await writer.drain()
            self.carried[way] += len(chunk)
        await self._open[way].wait()
        writer.write_eof()  # and not closed at once, which would take back what was carried a moment before


@asynccontextmanager
async def proxy_to(url: str) -> AsyncIterator[Proxy]:
    """A proxy before the server at `url` (`scheme://host:port`) for as long as the block runs."""
    host, _, port = url.rpartition("://")[2].rpartition(":")
    proxy = await Proxy(host, int(port)).start()
    try:
        yield proxy
    finally:
        await proxy.close()
