"""A connection that is made once and never again, for a library that would connect again by itself.

gRPC reconnects beneath its channels and tells afterwards, if at all. By then a call may have gone to whoever listens at
that address now. So the library is not given the address: it is given a socket in a folder of its own, at which it can
connect a single time, and what goes through is carried over the one TCP connection that was made before. When that
ends, there is nothing left to connect to. It also tells at once what a library hides for a while or words differently:
that a connection is refused, and that it broke.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import tempfile
from pathlib import Path
from typing import cast

from .description import Endpoint
from .errors import AdsumError

__all__ = ["Cord", "NotConnected", "is_never_sent"]

PREFIX = "adsum-cord-"
"""How the folder of a socket is named, before the number of the process. It is told to nobody else."""
_HELD_UP = 1 << 20
"""Bytes that wait for one end before the other is read no more."""

log = logging.getLogger("adsum.cord")


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
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it
        self.transport.set_write_buffer_limits(_HELD_UP)

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
            self.read(True)  # before, as the other end may be held up by it
            self.data_received(early)

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
        self._loop = asyncio.get_running_loop()
        self._far, self._near = _End(self), _End(self)
        self._listener: socket.socket | None = None
        self._joining: asyncio.Task[None] | None = None
        self._ended = False

    @classmethod
    async def tie(cls, endpoint: Endpoint, tls: ssl.SSLContext | None = None) -> Cord:
        """Connect. `tls`: speak it from here on, so that the library does not have to.

        Raises NotConnected; OSError where this machine has no folder or no socket left for the library.
        """
        cord = cls(endpoint)
        try:
            await cord._loop.create_connection(lambda: cord._far, endpoint.host, endpoint.port, ssl=tls)
        except (OSError, ValueError, OverflowError) as error:  # the last two: a host or a port that is none
            raise NotConnected(endpoint, error) from error
        try:
            cord._listen()
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
        self._listen_no_more()
        if self._far.transport is not None:
            self._far.transport.abort()
        near = self._near.transport
        if near is not None and ended is not self._far:
            near.abort()
        elif near is not None and self._far.other is not None:  # else it joins just now, and is told then
            near.close()  # which delivers what the peer said before it ended

    async def close(self) -> None:
        """Hang up, and wait until both sockets are closed."""
        self.end()
        if self._joining is not None:
            await asyncio.wait({self._joining})
        for end in (self._far, self._near):
            if end.transport is not None:
                await end.lost.wait()

    def _listen(self) -> None:
        if self._ended:
            raise NotConnected(self.endpoint, "it was closed at once")
        self.path = str(Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"), "socket"))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(self.path)
        self._listener.listen(1)
        self._loop.add_reader(self._listener, self._take)

    def _take(self) -> None:
        """Take the one connection, and no other."""
        assert self._listener is not None
        try:
            taken, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # no socket is left: who connects is told, instead of being taken later
            log.warning("cord to %s: %s", self.endpoint.address, error)
            self.end()
            return
        self._listen_no_more()
        taken.setblocking(False)
        self._joining = self._loop.create_task(self._join(taken), name=f"cord to {self.endpoint.address}")

    async def _join(self, taken: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._near, taken)
        except OSError:
            self.end()
            return
        self._near.tie_to(self._far)
        self._far.tie_to(self._near)
        if self._ended:
            self.end(self._far)

    def _listen_no_more(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._loop.remove_reader(listener)
            listener.close()
        if self.path:
            path = Path(self.path)
            with contextlib.suppress(OSError):  # also when it was removed before
                path.unlink(missing_ok=True)
                path.parent.rmdir()
