"""Register → visible in another process's cache, at a steady rate, through a real adsumd with everything embedded.

    python -m benchmarks.visibility [--rate 100] [--seconds 20] [--catalog DSN] [--json]

One process says `Registered` events (every one on disk before its acknowledgement) at the given rate; another holds
a directory. Both read the machine's one monotonic clock. Prints p50, p99 and the largest in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

from adsum.clients import connect
from adsum.events.description import Endpoint, describe
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Registered
from adsum.events.log import say
from adsum.events.names import Key
from benchmarks.running import adsumd

SERVICE = "orders"
SETTLE = 1.0


async def speak(url: str, rate: float, seconds: float) -> dict[str, float]:
    """Register at `rate` for `seconds`; when each call began, by instance id."""
    began: dict[str, float] = {}

    async def one(number: int) -> None:
        id = new_id()
        event = Registered(
            id=id,
            term=id,
            by=Author("owner"),
            instance=describe([Endpoint(host="10.0.0.1", port=1 + number % 65535)], heartbeat=100, ttl=300),
        )
        began[id] = time.monotonic()
        await say(registry.broker, Key("default", SERVICE, id), event, 0)

    async with connect(url) as registry:
        await registry.broker.ready(10)
        start = time.monotonic() + 0.1
        async with asyncio.TaskGroup() as tasks:
            for number in range(int(rate * seconds)):
                await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
                tasks.create_task(one(number))
    return began


async def listen(url: str, expected: int) -> dict[str, float]:
    """When each instance was seen, by id."""
    seen: dict[str, float] = {}
    async with connect(url) as registry, registry.directory(SERVICE) as orders:
        print("listening", flush=True)
        async with asyncio.timeout(120):
            async for change in orders.changes():
                if change.after is not None:
                    seen.setdefault(change.after.id, time.monotonic())
                if len(seen) == expected:
                    break
    return seen


async def measure(rate: float, seconds: float, catalog: str | None) -> dict[str, float]:
    """Run it; latencies in milliseconds."""
    expected = int(rate * seconds)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="adsum-bench-"))
        url = await stack.enter_async_context(adsumd(Path(folder), *(["--catalog", catalog] if catalog else [])))
        listener = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.visibility",
            "--listen",
            url,
            str(expected),
            stdout=asyncio.subprocess.PIPE,
        )
        assert listener.stdout is not None
        await listener.stdout.readline()
        await asyncio.sleep(SETTLE)
        began = await speak(url, rate, seconds)
        seen = json.loads(await listener.stdout.read())
        await listener.wait()
    delays = sorted(1000 * (seen[id] - at) for id, at in began.items())
    return {
        "registrations": len(delays),
        "p50": statistics.median(delays),
        "p99": delays[int(0.99 * len(delays))],
        "max": delays[-1],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--catalog")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--listen", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if given.listen:
            print(json.dumps(runner.run(listen(given.listen[0], int(given.listen[1])))))
            return
        figures = runner.run(measure(given.rate, given.seconds, given.catalog))
    if given.json:
        print(json.dumps(figures))
    else:
        print(
            f"register -> visible, {figures['registrations']} at {given.rate:g}/s: "
            f"p50 {figures['p50']:.2f} ms, p99 {figures['p99']:.2f} ms, max {figures['max']:.2f} ms"
        )


if __name__ == "__main__":
    main()
