"""A process that calls a service all the time, each call at an instance that its own directory has.

caller.py URL SERVICE: on SIGTERM it prints, as JSON, how many calls each instance answered, and what failed and why.
"""

from __future__ import annotations

import asyncio
import collections
import json
import random
import signal
import sys

from adsum.clients import Directory, connect

AT_ONCE, PAUSE, LIMIT = 4, 0.01, 5.0


async def call(orders: Directory) -> str:
    """One call of an instance; what it answered. Raises what went wrong."""
    chosen = random.choice(orders.instances(routable=True)).endpoint
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection(chosen.host, chosen.port)
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % chosen.host.encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    if not head.startswith(b"HTTP/1.1 200") or not body:
        raise ConnectionError(f"answered {head!r}")
    return body.decode()


async def main(url: str, service: str) -> None:
    """Call until SIGTERM."""
    answered, failed = collections.Counter[str](), list[str]()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)

    async def call_for_ever() -> None:
        while not stopped.is_set():
            try:
                answered[await call(orders)] += 1
            except Exception as error:  # noqa: BLE001  # whatever it is, a call failed
                failed.append(repr(error))
            await asyncio.sleep(PAUSE)

    async with connect(url) as registry, registry.directory(service) as orders:
        print("calling", flush=True)
        await asyncio.gather(*(call_for_ever() for _ in range(AT_ONCE)))
    print(json.dumps({"answered": answered, "failed": failed}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
