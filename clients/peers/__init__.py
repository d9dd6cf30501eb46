"""Calling a peer: connections that are kept, one an endpoint, and calls that find another peer where one is gone."""

from .dialing import IDENTITY, Blame, Dialer, Peer

__all__ = ["IDENTITY", "Blame", "Dialer", "Peer"]
