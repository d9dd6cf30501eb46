"""`flight()`: peers that speak Arrow Flight, called with `pyarrow.flight`."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .dialing import Dialer

if TYPE_CHECKING:
    from .flight_dialer import FlightConnection

__all__ = ["flight"]


def flight(
    *,
    tls: ssl.SSLContext | None = None,
    headers: Sequence[tuple[bytes, bytes]] = (),
    middleware: Sequence[Any] = (),
    options: Sequence[tuple[str, Any]] = (),
    threads: int = 16,
) -> Dialer[FlightConnection]:
    """For `Registry.peers(…, dial=flight())`: `peer.connection` is a `FlightConnection`, whose calls are awaited.

    With TLS where the endpoint's protocol is "grpcs" or "grpc+tls", by `tls`, which has to offer the protocol "h2"
    (else as `ssl.create_default_context` trusts); without it for any other. `headers`: sent with every call.
    `middleware` and `options`: the `middleware` and `generic_options` of a `pyarrow.flight.FlightClient`. `threads`:
    calls to one peer that are under way at the same time; more of them wait. A connection never connects again by
    itself.

    A peer is UNREACHABLE when it cannot be connected to, or the connection was gone before the call. FlightUnavailable,
    FlightTimedOut and FlightCancelled are BROKEN, since Flight does not tell whether the peer began with the call. All
    else it ANSWERED; that it DECLINED, Flight has no word for. Raises ImportError without pyarrow.
    """
    try:
        from .flight_dialer import FlightDialer  # pyarrow is an extra, and takes a while
    except ModuleNotFoundError as error:
        raise ImportError("flight() needs pyarrow: pip install 'adsum[flight]'") from error
    return FlightDialer(tls=tls, headers=headers, middleware=middleware, options=options, threads=threads)
