"""`grpc()`: peers that speak gRPC, called with `grpc.aio`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .dialing import Dialer

if TYPE_CHECKING:
    from grpc import ChannelCredentials, Compression
    from grpc.aio import Channel, ClientInterceptor

__all__ = ["grpc"]


def grpc(
    *,
    credentials: ChannelCredentials | None = None,
    options: Sequence[tuple[str, Any]] = (),
    interceptors: Sequence[ClientInterceptor] = (),
    compression: Compression | None = None,
) -> Dialer[Channel]:
    """For `Registry.peers(…, dial=grpc())`: `peer.connection` is a `grpc.aio.Channel` with one connection to the peer.

    With TLS where the endpoint's protocol is "grpcs", by `credentials` (else `grpc.ssl_channel_credentials()`);
    without it for any other. `options`, `interceptors` and `compression` are those of a channel, such as
    `("grpc.max_receive_message_length", -1)`. A channel never connects again by itself, through no proxy, and gRPC's
    own retries are off: Peers does both. Give a call its deadline: `stub.Get(request, timeout=peer.timeout)`.

    A peer is UNREACHABLE when it cannot be connected to, or the connection was gone before the call. UNAVAILABLE,
    DEADLINE_EXCEEDED and CANCELLED are BROKEN, since gRPC does not tell whether the peer began with the call. It
    DECLINED when it says `grpc-retry-pushback-ms` in its trailing metadata, as gRPC defines it. All else it ANSWERED.
    Raises ImportError without grpcio.
    """
    try:
        from .grpc_dialer import GrpcDialer  # grpcio is an extra
    except ModuleNotFoundError as error:
        raise ImportError("grpc() needs grpcio: pip install 'adsum[grpc]'") from error
    return GrpcDialer(credentials=credentials, options=options, interceptors=interceptors, compression=compression)
