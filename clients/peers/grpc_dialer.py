"""The dialer of `grpc()`: a channel whose one connection is a cord, so that it cannot connect again (see cord)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
from grpc import ChannelConnectivity, StatusCode, aio
from grpc_health.v1 import health_pb2

from adsum.events.cord import Cord, NotConnected, is_never_sent
from adsum.events.description import GRPC_HEALTH, Endpoint, health_path
from adsum.events.signals import Instance

from .dialing import IDENTITY, Blame, NotServing

__all__ = ["GrpcDialer"]

TLS = "grpcs"
"""The protocol of an endpoint that is spoken to with TLS; any other is spoken to without."""
PUSHBACK = "grpc-retry-pushback-ms"
"""What a server says that wants a call to be tried again, after so long; below zero or no number: not at all."""
_HANG_UP = 1.0
"""Seconds in which calls that are under way are told that the connection is gone."""
_PERHAPS_DONE = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED)


class GrpcDialer:
    """Dials, asks and closes channels. Each has a cord of its own."""

    def __init__(
        self,
        *,
        credentials: grpc.ChannelCredentials | None,
        options: Sequence[tuple[str, Any]],
        interceptors: Sequence[aio.ClientInterceptor],
        compression: grpc.Compression | None,
    ) -> None:
        self._credentials, self._options = credentials, tuple(options)
        self._more: dict[str, Any] = {"interceptors": list(interceptors), "compression": compression}
        self._cords: dict[aio.Channel, Cord] = {}

    async def dial(self, instance: Instance, endpoint: Endpoint) -> aio.Channel:
        """A channel that is ready. Raises NotConnected, also where whoever listens there speaks no gRPC."""
        cord = await Cord.tie(endpoint)
        channel = self._channel(cord)
        try:
            await _ready(channel, endpoint)
        except BaseException:
            await cord.close()
            await channel.close()
            raise
        self._cords[channel] = cord
        return channel

    async def close(self, connection: aio.Channel) -> None:
        """Hang up. A call that is under way fails as when the connection breaks: gRPC alone would cancel its caller."""
        cord = self._cords.pop(connection, None)
        if cord is not None:
            await cord.close()
        await connection.close(grace=_HANG_UP)

    async def identify(self, connection: aio.Channel, instance: Instance, endpoint: Endpoint) -> str | None:
        """Who answers the health check, if one was declared. Raises NotServing where it does not serve now."""
        if health_path(instance.metadata, endpoint.name) != GRPC_HEALTH:
            return None
        check = connection.unary_unary(
            GRPC_HEALTH,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        call = check(health_pb2.HealthCheckRequest())
        try:
            answer = await call
        except aio.AioRpcError as error:
            if error.code() is StatusCode.RESOURCE_EXHAUSTED:
                raise NotServing(f"{instance.key} takes no more calls: {error.details()}") from error
            if self.blame(error) is Blame.ANSWERED:
                return ""  # somebody is there, without any health
            raise
        if answer.status != health_pb2.HealthCheckResponse.SERVING:
            raise NotServing(f"{instance.key} is {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}")
        who = dict(await call.initial_metadata()).get(IDENTITY, "")
        return who if isinstance(who, str) else ""

    def stands(self, connection: aio.Channel) -> bool:
        """Whether its connection stands, and the peer takes new calls on it: one that stops says so."""
        cord = self._cords.get(connection)
        return cord is not None and cord.stands and connection.get_state() is ChannelConnectivity.READY

    def blame(self, error: Exception) -> Blame:
        """See `grpc`."""
        if isinstance(error, NotConnected):
            return Blame.UNREACHABLE
        if isinstance(error, NotServing):
            return Blame.DECLINED
        if isinstance(error, aio.UsageError) and "Channel is clos" in str(error):
            return Blame.UNREACHABLE
        if not isinstance(error, aio.AioRpcError):
            return Blame.ANSWERED
        if error.code() is StatusCode.UNAVAILABLE and is_never_sent(error.details() or ""):
            return Blame.UNREACHABLE
        if _pushes_back(error):
            return Blame.DECLINED
        return Blame.BROKEN if error.code() in _PERHAPS_DONE else Blame.ANSWERED

    def _channel(self, cord: Cord) -> aio.Channel:
        own = [("grpc.enable_retries", 0), ("grpc.default_authority", cord.endpoint.address)]
        target = f"unix:{cord.path}"
        if cord.endpoint.protocol != TLS:
            return aio.insecure_channel(target, options=[*own, *self._options], **self._more)
        own.append(("grpc.ssl_target_name_override", cord.endpoint.host))
        credentials = self._credentials or grpc.ssl_channel_credentials()
        return aio.secure_channel(target, credentials, options=[*own, *self._options], **self._more)


async def _ready(channel: aio.Channel, endpoint: Endpoint) -> None:
    state = channel.get_state(try_to_connect=True)
    while state is not ChannelConnectivity.READY:
        if state is ChannelConnectivity.TRANSIENT_FAILURE:
            raise NotConnected(endpoint, "whoever listens there does not speak gRPC, or not with TLS as we do")
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


def _pushes_back(error: aio.AioRpcError) -> bool:
    said = dict(error.trailing_metadata() or ()).get(PUSHBACK, "")
    return isinstance(said, str) and said.isdecimal()
