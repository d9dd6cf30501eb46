"""Asking a gRPC server how it is, in gRPC's own way. Imported where it is needed: grpcio is an extra of adsumd."""

from __future__ import annotations

import ssl

from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2 as words

from adsum.events.cord import Cord
from adsum.events.description import GRPC_HEALTH, Endpoint

__all__ = ["check"]

_FAULTS = (
    StatusCode.CANCELLED,
    StatusCode.DATA_LOSS,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.INTERNAL,
    StatusCode.UNAVAILABLE,
    StatusCode.UNKNOWN,
)
"""What says of a server what a status of 500 and above says in HTTP."""


async def check(endpoint: Endpoint, tls: ssl.SSLContext | None) -> tuple[bool, str]:
    """Whether it serves, and what it said. Raises NotConnected and OSError as `Cord.tie`."""
    cord = await Cord.tie(endpoint, tls)
    options = (("grpc.enable_retries", 0), ("grpc.default_authority", endpoint.address))
    channel = aio.insecure_channel(f"unix:{cord.path}", options=options)
    try:
        ask = channel.unary_unary(
            GRPC_HEALTH,
            request_serializer=words.HealthCheckRequest.SerializeToString,
            response_deserializer=words.HealthCheckResponse.FromString,
        )
        answer = await ask(words.HealthCheckRequest())
    except aio.AioRpcError as error:
        return error.code() not in _FAULTS, f"status {error.code().name}"
    finally:
        await cord.close()
        await channel.close()
    said = words.HealthCheckResponse.ServingStatus.Name(answer.status)
    return answer.status == words.HealthCheckResponse.SERVING, said
