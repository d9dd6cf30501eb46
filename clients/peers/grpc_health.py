"""For a gRPC server: to say how it is, in gRPC's own way, and who it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adsum.events.names import Key

from .dialing import IDENTITY

if TYPE_CHECKING:
    from grpc.aio import Server

__all__ = ["add_health"]


def add_health(server: Server, key: Key) -> Any:
    """Have `server` answer `grpc.health.v1.Health`, and say with each Check that it is the instance `key`.

    Before the server starts; declare it with `metadata={"health.main": GRPC_HEALTH}`. Gives the servicer of
    `grpc_health.v1.health.aio`: it serves, until you say `await servicer.set("", NOT_SERVING)`. Raises ImportError
    without grpcio-health-checking.
    """
    try:
        import grpc  # an extra
        from grpc_health.v1 import health_pb2 as words
        from grpc_health.v1.health import aio
    except ModuleNotFoundError as error:
        raise ImportError("add_health() needs grpcio-health-checking: pip install 'adsum[grpc]'") from error
    servicer = aio.HealthServicer()

    async def check(request: Any, context: Any) -> Any:
        await context.send_initial_metadata(((IDENTITY, str(key)),))
        return await servicer.Check(request, context)

    of_words = {
        "request_deserializer": words.HealthCheckRequest.FromString,
        "response_serializer": words.HealthCheckResponse.SerializeToString,
    }
    methods = {
        "Check": grpc.unary_unary_rpc_method_handler(check, **of_words),
        "Watch": grpc.unary_stream_rpc_method_handler(servicer.Watch, **of_words),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods),))
    return servicer
