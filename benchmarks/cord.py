"""What it costs that a gRPC channel goes through a cord and not straight to its peer.

    python -m benchmarks.cord [--rounds 7] [--json]

A server in a process of its own that says again what it is told, and two channels to it: one of gRPC's own, and one of
`grpc()`. `small`: calls of five bytes each way, one after the other. `large`: of 3 MB. Rounds of both take turns;
medians of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from multiprocessing.connection import Connection

from grpc import aio, method_handlers_generic_handler, unary_unary_rpc_method_handler

from adsum.clients import grpc
from adsum.events.description import Endpoint
from benchmarks.choosing import instance
from benchmarks.running import report

SERVICE, METHOD = "benchmarks.Echo", "Echo"
SMALL, LARGE = b"hello", os.urandom(3_000_000)
CALLS = {SMALL: 300, LARGE: 20}
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


async def echo(request: bytes, context: aio.ServicerContext) -> bytes:
    """Say it again."""
    return request


async def serve(told: Connection) -> None:
    """Listen at a free port, tell it, and answer for ever."""
    server = aio.server(options=OPTIONS)
    methods = {METHOD: unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((method_handlers_generic_handler(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    told.send(port)
    await server.wait_for_termination()


def run_server(told: Connection) -> None:
    """A process."""
    asyncio.run(serve(told))


async def each(channel: aio.Channel, sent: bytes) -> float:
    """Microseconds of a call."""
    call = channel.unary_unary(f"/{SERVICE}/{METHOD}")
    began = time.perf_counter()
    for _ in range(CALLS[sent]):
        await call(sent)
    return (time.perf_counter() - began) / CALLS[sent] * 1e6


async def measure(port: int, rounds: int) -> dict[str, float]:
    """Both channels, in turns."""
    endpoint = Endpoint(host="127.0.0.1", port=port, protocol="grpc")
    dialer = grpc(options=OPTIONS)
    found: dict[str, float] = {}
    async with aio.insecure_channel(endpoint.address, options=OPTIONS) as straight:
        tied = await dialer.dial(instance(1, 1, endpoints=(endpoint,)), endpoint)
        for name, sent in (("small", SMALL), ("large", LARGE)):
            took: dict[str, list[float]] = {"straight": [], "cord": []}
            for number in range(rounds + 1):
                for way, channel in (("straight", straight), ("cord", tied)):
                    one = await each(channel, sent)
                    if number:  # the first round warms up
                        took[way].append(one)
            found |= {f"{name}_{way}_us": statistics.median(times) for way, times in took.items()}
        await dialer.close(tied)
    return found


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    hear, tell = context.Pipe(duplex=False)
    server = context.Process(target=run_server, args=(tell,), daemon=True)
    server.start()
    try:
        report(measure(hear.recv(), options.rounds), options.json)
    finally:
        server.kill()
        server.join()


if __name__ == "__main__":
    main()
