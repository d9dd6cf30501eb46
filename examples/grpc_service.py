"""A service over gRPC, without generated code: `Upper` gives back what it is sent in capitals. Start two or three.

With an adsumd running (`adsumd`):

    python examples/grpc_service.py 50051
    python examples/grpc_caller.py one two three

On Ctrl-C or SIGTERM it leaves so that no call is lost: it drains, goes on for a moment, finishes, says goodbye.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import grpc

from adsum.clients import GRPC_HEALTH, add_health, connect

GRACE = 30.0
"""Seconds that the calls in flight have to finish."""


async def upper(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    """With generated code it would be a method of a servicer, with messages instead of bytes."""
    return request.decode().upper().encode()


async def main(port: int) -> None:
    """Listen, register, serve until told to stop."""
    stop = asyncio.Event()
    for sent in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sent, stop.set)
    server = grpc.aio.server()
    server.add_insecure_port(f"127.0.0.1:{port}")
    methods = {"Upper": grpc.unary_unary_rpc_method_handler(upper)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("example.Text", methods),))
    async with connect(os.environ.get("ADSUM_NATS")) as registry:
        health = {"health.main": GRPC_HEALTH}
        registration = registry.register("text", host="127.0.0.1", port=port, protocol="grpc", metadata=health)
        add_health(server, registration.key)
        await server.start()
        async with registration as me:  # only now: who hears of it can call it
            print(f"{me.id} serves at 127.0.0.1:{port}", flush=True)
            await stop.wait()
            await me.drain("stopped")  # it still takes calls meanwhile, of those who had just picked it
            await server.stop(GRACE)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
