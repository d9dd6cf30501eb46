"""A connection that is made once and never again, for a library that would connect again by itself.

gRPC reconnects beneath its channels and tells afterwards, if at all. By then a call may have gone to whoever listens at
that address now. So the library is not given the address: it is given a socket in a folder of its own, at which it can
connect a single time, and what goes through is carried over the one TCP connection that was made when the peer was
dialed. When that ends, there is nothing left to connect to. It also tells at once what a library hides for a while or
words differently: that a connection is refused, and that it broke.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import tempfile
from pathlib import Path

from adsum.events.description import Endpoint
from adsum.events.errors import AdsumError

__all__ = ["Cord", "NotConnected", "is_never_sent"]

PREFIX = "adsum-cord-"
"""How the folder of a socket is named, before the number of the process. It is told to nobody else."""
_HELD_UP = 1 << 20
"""Bytes that wait for one end before the other is read no more."""


def is_never_sent(told: str) -> bool:
    """Whether gRPC says that it would have had to connect again, at one of our sockets, before anything was sent.

    The name of the socket shows that they are its words: a server could pass on what its own gRPC told it.
    """
    return "failed to connect to all addresses" in told and f"/{PREFIX}{os.getpid()}-" in told


class NotConnected(AdsumError, ConnectionError):
    """There is no connection to a peer: it could not be made, or it ended. Nothing was sent."""

    def __init__(self, endpoint: Endpoint, why: object) -> None:
        super().__init__(f"no connection to {endpoint.address}: {why}")


class _End(asyncio.Protocol):
    """One end: what it receives goes to the other one, and waits for it at first."""

    def __init__(self, cord: Cord) -> None:
        self._cord = cord
        self._early = bytearray()
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(_HELD_UP)

    def data_received(self, data: bytes) -> None:
        other = self.other.transport if self.other is not None else None
        if other is None:
            self._early += data
            if len(self._early) >= _HELD_UP:
                self.read(False)
        elif not other.is_closing():
            other.write(data)

    def tie_to(self, other: _End) -> None:
        """Both are connected: from now on what the one receives goes to the other."""
        self.other = other
        early, self._early = bytes(self._early), bytearray()
        if early:
            self.data_received(early)
            self.read(True)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.read(False)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.read(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._cord.end(self)

    def read(self, on: bool) -> None:
        """Read on, or no more for now."""
        if self.transport is None or self.transport.is_closing() or self.transport.is_reading() == on:
            return
        if on:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()


class Cord:
    """The connection to one endpoint, and the socket at `path` that leads into it once. Made by `tie`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.path = ""
        self._far, self._near = _End(self), _End(self)
        self._handing: asyncio.Task[None] | None = None
        self._ended = False

    @classmethod
    async def tie(cls, endpoint: Endpoint, tls: ssl.SSLContext | None = None) -> Cord:
        """Connect. `tls`: speak it from here on, so that the library does not have to. Raises NotConnected."""
        cord, loop = cls(endpoint), asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: cord._far, endpoint.host, endpoint.port, ssl=tls)
        except (OSError, ValueError, OverflowError) as error:  # the last two: a host or a port that is none
            raise NotConnected(endpoint, error) from error
        try:
            cord._await_library()
        except BaseException:
            cord.end()
            raise
        return cord

    @property
    def stands(self) -> bool:
        """Whether the connection has not ended yet."""
        return not self._ended

    def end(self, ended: _End | None = None) -> None:
        """Hang up both ends, or the other one if one has `ended`."""
        self._ended = True
        self._untie()
        if self._handing is not None:
            self._handing.cancel()
        if self._far.transport is not None:
            self._far.transport.abort()
        if self._near.transport is not None:
            if ended is self._far:
                self._near.transport.close()  # what the peer said before it ended is still delivered
            else:
                self._near.transport.abort()

    async def close(self) -> None:
        """Hang up, and wait until both sockets are closed."""
        self.end()
        for end in (self._far, self._near):
            if end.transport is not None:
                await end.lost.wait()

    def _await_library(self) -> None:
        if self._ended:
            raise NotConnected(self.endpoint, "it was closed at once")
        self.path = str(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"), "socket"))
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.bind(self.path)
        listener.listen(1)
        self._handing = asyncio.create_task(self._hand_over(listener), name=f"cord to {self.endpoint.address}")

    async def _hand_over(self, listener: socket.socket) -> None:
        """Take the one connection, and no other."""
        loop = asyncio.get_running_loop()
        with listener:
            taken, _ = await loop.sock_accept(listener)
        self._untie()
        await loop.connect_accepted_socket(lambda: self._near, taken)
        self._near.tie_to(self._far)
        self._far.tie_to(self._near)

    def _untie(self) -> None:
        if self.path:
            shutil.rmtree(Path(self.path).parent, ignore_errors=True)
