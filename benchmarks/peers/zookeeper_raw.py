"""ZooKeeper without kazoo: sessions straight on the protocol, to show the server's side without the client's threads.

A session can be pinged, and can watch the data of one node, which it reads and watches anew after each change.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

from adsum.events.signals import Instance
from benchmarks import making

from . import client
from .zookeeper import PATH, missing, running, version

__all__ = ["Client", "Session", "missing", "running", "session", "version"]

PING = struct.pack(">iii", 8, -2, 11)
NOTICE, GET = -1, 4
PATIENCE = 60.0


class Session(asyncio.Protocol):
    """`heard` gets the answers to pings (b"") and the data of the node."""

    def __init__(self, timeout: float, heard: Callable[[bytes], None], node: str = "") -> None:
        self._timeout, self._heard, self._node = timeout, heard, node.encode()
        self._buffer = b""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connected = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a new session."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self._send(struct.pack(">iqiqi", 0, 0, int(self._timeout * 1000), 0, 16) + bytes(17))

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits is told."""
        if not self.ready.done():
            self.ready.set_exception(exc or ConnectionError("closed"))

    def ping(self) -> None:
        """A heartbeat."""
        self.transport.write(PING)

    def data_received(self, data: bytes) -> None:
        """Frames."""
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int(struct.unpack_from(">i", self._buffer)[0])
            if len(self._buffer) < end:
                return
            frame, self._buffer = self._buffer[4:end], self._buffer[end:]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        if not self._connected:
            self._connected = True
            if self._node:
                self._read()
            else:
                self.ready.set_result(None)
            return
        number = struct.unpack_from(">i", frame)[0]
        if number == -2:
            self._heard(b"")
        elif number == NOTICE:
            self._read()
        elif not self.ready.done():
            self.ready.set_result(None)
        else:
            length = struct.unpack_from(">i", frame, 16)[0]
            self._heard(frame[20 : 20 + length])

    def _read(self) -> None:
        self._send(struct.pack(">iii", 1, GET, len(self._node)) + self._node + b"\1")

    def _send(self, body: bytes) -> None:
        self.transport.write(struct.pack(">i", len(body)) + body)


async def session(address: str, timeout: float, heard: Callable[[bytes], None], node: str = "") -> Session:
    """One that is ready."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(lambda: Session(timeout, heard, node), host, int(port))
    await asyncio.wait_for(made.ready, PATIENCE)
    return made


class Client(client.Client):
    """Only watches, and only the instance 0: see `client.Client`."""

    async def open(self) -> None:
        """Each watch is a session of its own."""

    async def close(self) -> None:
        """See open."""

    @asynccontextmanager
    async def watch(self, heard: client.Heard) -> AsyncIterator[object]:
        """A data watch."""

        def got(data: bytes) -> None:
            if data:
                instance = making.read(data)
                heard(instance.id, instance)

        one = await session(self.address, 40.0, got, f"{PATH}/{making.id_of(0)}")
        try:
            yield one
        finally:
            one.transport.close()

    async def register(self, number: int, ttl: float) -> None:
        """Not here."""
        raise NotImplementedError

    async def register_many(self, numbers: Sequence[int], ttl: float) -> None:
        """Not here."""
        raise NotImplementedError

    async def heartbeat(self, numbers: Sequence[int]) -> None:
        """Not here."""
        raise NotImplementedError

    async def change(self, number: int, version: str) -> None:
        """Not here."""
        raise NotImplementedError

    async def ask(self, number: int) -> Instance | None:
        """Not here."""
        raise NotImplementedError

    async def load(self) -> Sequence[Instance]:
        """Not here."""
        raise NotImplementedError
