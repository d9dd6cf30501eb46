"""Calling a peer: connections that are kept, one an endpoint, and calls that find another peer where one is gone."""

from .calling import Bounds, Peers
from .dialing import IDENTITY, Blame, Dialer, Peer
from .flights import flight
from .grpc_health import add_health
from .grpcs import grpc
from .https import http
from .identified import Identified

__all__ = [
    "IDENTITY",
    "Blame",
    "Bounds",
    "Dialer",
    "Identified",
    "Peer",
    "Peers",
    "add_health",
    "flight",
    "grpc",
    "http",
]
