"""A cache spread over processes by consistent hashing: a key has its place, and keeps it as others come and go.

With an adsumd running (`adsumd`), start some of them, and then ask:

    python examples/cached_answers.py serve 8001
    python examples/cached_answers.py serve 8002
    python examples/cached_answers.py ask apple pear plum apple pear plum

Who asks twice for a key asks the same process twice, whoever asks: the second time it knows the answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from adsum.clients import ConsistentHash, connect

SERVICE = "cache"


async def serve(port: int) -> None:
    """Answer each line with what is known of it; until Ctrl-C or SIGTERM."""
    known: dict[bytes, int] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = await reader.readline()
        known[key] = known.get(key, 0) + 1
        writer.write(f"{'known' if known[key] > 1 else 'new'} at {port}\n".encode())
        writer.close()
        await writer.wait_closed()

    stop = asyncio.Event()
    for sent in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sent, stop.set)
    async with (
        await asyncio.start_server(answer, "127.0.0.1", port),
        connect(os.environ.get("ADSUM_NATS")) as registry,
        registry.register(SERVICE, host="127.0.0.1", port=port, protocol="tcp") as me,
    ):
        print(f"{me.id} serves at 127.0.0.1:{port}", flush=True)
        await stop.wait()
        await me.drain("stopped")


async def ask(*keys: str) -> None:
    """Ask whoever has the place of each key."""
    async with connect(os.environ.get("ADSUM_NATS")) as registry, registry.directory(SERVICE) as caches:
        selection = caches.select(policy=ConsistentHash())
        for key in keys:
            picked = selection.pick(key)
            with selection.calling(picked):
                reader, writer = await asyncio.open_connection(picked.endpoint.host, picked.endpoint.port)
                writer.write(f"{key}\n".encode())
                print(f"{key}: {(await reader.readline()).decode().strip()}", flush=True)
                writer.close()
                await writer.wait_closed()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve(int(sys.argv[2])))
    else:
        asyncio.run(ask(*sys.argv[2:]))
