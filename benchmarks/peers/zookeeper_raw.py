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

__all__ = ["Client", "Session", "missing", "open_session", "running", "version"]

PINGED, NOTICE, GET = -2, -1, 4
PING = struct.pack(">iii", 8, PINGED, 11)
PATIENCE = 60.0
TIMEOUT = 40.0
"""Seconds; the most that the server takes by default."""


class Session(asyncio.Protocol):
    """`answered` is called after each ping; `changed` with the data of the node, which is watched if one is named."""

    def __init__(
        self,
        timeout: float,
        answered: Callable[[Session], None],
        node: str = "",
        changed: Callable[[bytes], None] | None = None,
    ) -> None:
        self._timeout, self._answered, self._changed, self._node = timeout, answered, changed, node.encode()
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
        if number == PINGED:
            self._answered(self)
        elif number == NOTICE:
            self._read()
        elif not self.ready.done():
            self.ready.set_result(None)
        elif self._changed is not None:
            length = struct.unpack_from(">i", frame, 16)[0]
            self._changed(frame[20 : 20 + length])

    def _read(self) -> None:
        self._send(struct.pack(">iii", 1, GET, len(self._node)) + self._node + b"\1")

    def _send(self, body: bytes) -> None:
        self.transport.write(struct.pack(">i", len(body)) + body)


async def open_session(
    address: str,
    timeout: float,
    answered: Callable[[Session], None],
    node: str = "",
    changed: Callable[[bytes], None] | None = None,
) -> Session:
    """One that is ready."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, made = await loop.create_connection(lambda: Session(timeout, answered, node, changed), host, int(port))
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

        def changed(data: bytes) -> None:
            instance = making.read(data)
            heard(instance.id, instance)

        one = await open_session(self.address, TIMEOUT, lambda _: None, f"{PATH}/{making.id_of(0)}", changed)
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
