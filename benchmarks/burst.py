"""A burst of registrations until another process's caches show all of them, through a real adsumd.

    python -m benchmarks.burst [--by many|given|fleet] [--size 10000] [--caches 1] [--rounds 3] [--catalog DSN]
                               [--flush-late]

One process registers: `fleet` says bare `Registered` events, each acknowledged by itself and 500 on the way; `many`
is `registry.register_many`, and `given` the same with ids of their own, whose last words are looked up first. Another
one holds the caches. Rates are instances a second from the first word until all are acknowledged, and until the last
cache shows all of them; CPU seconds are those of a round. Medians over the rounds. By default every event is on disk
when it is acknowledged (the embedded broker); `--flush-late` runs adsumd on a nats-server with its own defaults, which
flushes every two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import uvloop

from adsum.clients import connect
from adsum.projector import embedded
from benchmarks.fleet import Fleet
from benchmarks.running import report, start

LIMIT = 120.0
SETTLE = 1.0
_ON_DISK = "  sync_interval: always  # an event is on disk when it is acknowledged\n"


def spent(pid: int | None = None) -> float:
    """CPU seconds of a process so far, by default of this one."""
    if pid is None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


async def listen(url: str, service: str, expected: int, caches: int) -> None:
    """Hold caches of a service; prints when the last of them shows all that are expected, and its CPU seconds."""
    async with AsyncExitStack() as stack:
        registry = await stack.enter_async_context(connect(url))
        held = [await stack.enter_async_context(registry.directory(service)) for _ in range(caches)]
        before = spent()
        print("listening", flush=True)
        async with asyncio.timeout(LIMIT):
            for cache in held:
                async for _ in cache.changes():
                    if len(cache) >= expected:
                        break
        print(json.dumps({"at": time.monotonic(), "cpu": spent() - before}), flush=True)


async def speak(url: str, service: str, size: int, by: str) -> None:
    """Register when told to, print when it began and when all were acknowledged; leave when told to."""
    async with AsyncExitStack() as stack:
        registry = await stack.enter_async_context(connect(url))
        await registry.broker.ready(10)
        fleet = Fleet(registry.broker, size, service, 100, 300)
        owned = [
            registry.register(
                service,
                id=f"o-{n}" if by == "given" else None,
                host="10.0.0.1",
                port=1 + n % 65535,
                heartbeat=100,
                ttl=300,
            )
            for n in range(0 if by == "fleet" else size)
        ]
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        cpu, began = spent(), time.monotonic()
        if owned:
            await stack.enter_async_context(registry.register_many(owned, wait=LIMIT))
        else:
            await fleet.register()
        print(json.dumps({"began": began, "acked": time.monotonic(), "cpu": spent() - cpu}), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


async def child(*arguments: str) -> asyncio.subprocess.Process:
    """This module as another process, once it is ready."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.burst", *arguments, stdin=pipe, stdout=pipe
    )
    assert process.stdout is not None
    await process.stdout.readline()
    return process


async def told(process: asyncio.subprocess.Process) -> dict[str, float]:
    """The next line of a child."""
    assert process.stdout is not None
    figures: dict[str, float] = json.loads(await process.stdout.readline())
    return figures


async def once(url: str, daemons: dict[str, int], service: str, given: argparse.Namespace) -> dict[str, float]:
    """One burst."""
    listener = await child("--child", "listen", url, service, str(given.size), str(given.caches))
    speaker = await child("--child", "speak", url, service, str(given.size), given.by)
    assert speaker.stdin is not None
    await asyncio.sleep(SETTLE)
    before = {name: spent(pid) for name, pid in daemons.items()}
    speaker.stdin.write(b"go\n")
    said, seen = await told(speaker), await told(listener)
    used = {f"CPU s {name}": spent(pid) - before[name] for name, pid in daemons.items()}
    speaker.stdin.write(b"leave\n")
    await speaker.wait()
    await listener.wait()
    return {
        "acknowledged/s": given.size / (said["acked"] - said["began"]),
        "in every cache/s": given.size / (seen["at"] - said["began"]),
        "seconds until acknowledged": said["acked"] - said["began"],
        "seconds until in every cache": seen["at"] - said["began"],
        **used,
        "CPU s registering process": said["cpu"],
        "CPU s caching process": seen["cpu"],
    }


@asynccontextmanager
async def running(folder: Path, given: argparse.Namespace) -> AsyncIterator[tuple[str, dict[str, int]]]:
    """(the broker's URL, the processes by name) of an adsumd."""
    arguments = ["--catalog", given.catalog] if given.catalog else []
    broker = None
    if given.flush_late:
        embedded._CONFIG = embedded._CONFIG.replace(_ON_DISK, "")
        broker = await embedded.EmbeddedBroker.start(folder, port=0)
        arguments += ["--nats", broker.url]
    process, url = await start(folder, *arguments)
    try:
        pid = broker.pid if broker else psutil.Process(process.pid).children()[0].pid
        yield broker.url if broker else url, {"adsumd": process.pid, "broker": pid}
    finally:
        process.terminate()
        await process.wait()
        if broker:
            await broker.stop()


async def measure(given: argparse.Namespace) -> dict[str, float]:
    """Medians of some rounds."""
    with tempfile.TemporaryDirectory(prefix="adsum-bench-") as folder:
        async with running(Path(folder), given) as (url, daemons):
            await asyncio.sleep(SETTLE)
            rounds = [await once(url, daemons, f"fleet-{n}", given) for n in range(given.rounds)]
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=("fleet", "many", "given"), default="many")
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--caches", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--catalog")
    parser.add_argument("--flush-late", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if not given.child:
        report(measure(given), given.json)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        what, url, service, size, how = given.child
        doing = listen(url, service, int(size), int(how)) if what == "listen" else speak(url, service, int(size), how)
        runner.run(doing)


if __name__ == "__main__":
    main()
