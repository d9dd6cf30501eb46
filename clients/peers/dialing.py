"""What is asked of a protocol: to connect, to hang up, to ask who answers, and what an error says about the peer."""

from __future__ import annotations

import enum
from typing import Generic, Protocol, TypeVar

import msgspec

from adsum.events.description import Endpoint
from adsum.events.errors import AdsumError
from adsum.events.signals import Instance

__all__ = ["IDENTITY", "Blame", "Dialer", "NotServing", "Peer"]

IDENTITY = "adsum-instance"
"""The header (HTTP) or the initial metadata (gRPC) in which a peer says who it is: `str(registration.key)`."""

C = TypeVar("C")
"""A connection, of whatever type the protocol's library has for it."""


class Blame(enum.Enum):
    """What an error of a call says about the peer that was called."""

    UNREACHABLE = "unreachable"
    """Nothing was sent: nobody is there, or nobody answers. Any call may be tried on another peer."""
    BROKEN = "broken"
    """The connection broke, or no answer came, after something was sent: perhaps it was done, perhaps not."""
    DECLINED = "declined"
    """The peer answered that it does not take the call now, and did nothing. Any call may be tried on another."""
    ANSWERED = "answered"
    """An error of the callee's own, for the caller: the peer is well."""


class NotServing(AdsumError):
    """A peer that was asked who it is answers as itself that it does not serve now: it DECLINED."""


class Peer(msgspec.Struct, Generic[C], frozen=True):
    """One who is being called: what the function of `Peers.call` is given."""

    connection: C
    """What the dialer made: an `httpx.AsyncClient`, a `grpc.aio.Channel`, …"""
    instance: Instance
    endpoint: Endpoint
    timeout: float
    """Seconds that are left for the callee, without the caller's grace: what it may be told, in the protocol's way."""


class Dialer(Protocol[C]):
    """How one protocol is spoken; `http()`, `grpc()` and `flight()` give ready ones."""

    async def dial(self, instance: Instance, endpoint: Endpoint) -> C:
        """A connection that is known to stand, or whose first use tells. Cancelled when it takes too long."""

    async def close(self, connection: C) -> None:
        """Hang up. No call is under way on it any more, or none that is worth waiting for."""

    async def identify(self, connection: C, instance: Instance, endpoint: Endpoint) -> str | None:
        """Who answers there, in its own words (see IDENTITY): asked at the health endpoint that `instance` declared.

        "" where it answers and does not say. None where none was declared: then a connection is all that can be asked
        for. Raises what a call would. Asked once, before the first call over a connection, which from then on is only
        good for whoever answered: one that connects again beneath asks anew before anything of a call goes over it, and
        raises NotItself where somebody else answers; or it `stands` no more.
        """

    def stands(self, connection: C) -> bool:
        """Whether it is still the connection that was dialed, as far as is known here; asked before each use, so quick.

        False once it broke, for good: one that could connect again by itself could lead to somebody else by then. Then
        it is closed, once no call is under way on it any more, and another one is dialed and asked who it is.
        """

    def blame(self, error: Exception) -> Blame:
        """What an error of `dial`, `identify` or a call says about the peer. Never asked of NotItself and TimeoutError:
        the first is UNREACHABLE, the second BROKEN, or UNREACHABLE while dialing."""
