"""`http()`: peers that speak HTTP/1.1, called with httpx.

httpx opens and closes connections beneath as it needs them, and does not tell. So its connections go through a network
of ours: the first one is made when the peer is dialed, and once a peer was asked who it is, each new connection asks
again, and nothing goes over it before the same one has answered on it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .dialing import Dialer

if TYPE_CHECKING:
    import httpx

__all__ = ["http"]


def http(
    *,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    limits: httpx.Limits | None = None,
    connect: float = 5.0,
    options: Mapping[str, Any] | None = None,
) -> Dialer[httpx.AsyncClient]:
    """For `Registry.peers(…, dial=http())`: `peer.connection` is an `httpx.AsyncClient` whose base URL is the peer's.

    https where the endpoint's protocol is "https", else http; in HTTP/1.1, and through no proxy. `headers`: sent with
    every request. `tls`: whom to trust, and as whom; httpx's own context unless given. `limits`: of each peer; unless
    they say otherwise, a connection that was idle for 1.5 s is not used again (`keepalive_expiry`: to be shorter than
    the servers keep theirs). `connect`: seconds in which one more connection to a peer must stand. `options`: more
    arguments of `httpx.AsyncClient`, such as `auth`.

    A peer is UNREACHABLE when it cannot be connected to, BROKEN when the connection breaks or no answer comes, and
    DECLINED is only that all connections of `limits` are in use, or that it was asked who it is and answered as itself
    with a status of 5xx. An answer to a call is an answer, whatever its status; so is what `raise_for_status` raises.
    Raises ImportError without httpx.
    """
    try:
        from .httpx_dialer import HttpxDialer
    except ModuleNotFoundError as error:
        raise ImportError("http() needs httpx: pip install 'adsum[http]'") from error
    return HttpxDialer(headers=headers, tls=tls, limits=limits, connect=connect, options=options)
