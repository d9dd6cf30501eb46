"""How long a daemon of many instances takes to come back, and how much memory it holds.

    python -m benchmarks.restart [--instances 100000] [--rounds 3] [--catalog sqlite|postgres] [--kill] [--json]

The instances are registered once, everything embedded, beat once, and are told. Then the daemon is ended (`--kill`: by
kill -9,
broker and all) and started again, some rounds. Seconds from the start of the process: until it is ready (its broker
and its catalog are open, the fold stands at the log's end), until it leads, and until it has compared the whole
topology and proves caches complete (its first mark). Memory is the resident set of the projector, at most and after.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
from nats.aio.msg import Msg

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_service_mark, decode_tick
from adsum.events.settings import BrokerSettings
from benchmarks.fleet import Fleet
from benchmarks.running import report, start
from tests.databases import PostgresServer

SERVICE = "fleet"
LIMIT = 120.0
BEATS_A_SECOND = 10_000


class Signs:
    """What a daemon says on the bus: when its first tick and its first mark of the whole fleet were heard."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.led, self.marked = asyncio.Event(), asyncio.Event()
        self.led_at = self.marked_at = 0.0

    async def tick(self, msg: Msg) -> None:
        """A tick of the leader, or of one that gives the lease back."""
        if decode_tick(msg.data).leader and not self.led_at:
            self.led_at = time.monotonic()
            self.led.set()

    async def mark(self, msg: Msg) -> None:
        """A mark of the service."""
        if decode_service_mark(msg.data).count == self._size and not self.marked_at:
            self.marked_at = time.monotonic()
            self.marked.set()


@asynccontextmanager
async def listening(url: str, size: int) -> AsyncIterator[tuple[Broker, Signs]]:
    """A connection that hears those signs."""
    broker, signs = Broker.open(BrokerSettings(url=url), "signs"), Signs(size)
    try:
        await broker.ready(10)
        await broker.subscribe(subjects.TICK, signs.tick)
        await broker.subscribe(subjects.service_mark("default", SERVICE), signs.mark)
        yield broker, signs
    finally:
        await broker.close()


async def end(daemon: asyncio.subprocess.Process, how: signal.Signals) -> None:
    """End a daemon, and wait until its broker has gone too."""
    children = psutil.Process(daemon.pid).children()
    daemon.send_signal(how)
    await daemon.wait()
    await asyncio.to_thread(psutil.wait_procs, children, 30)


def peak_mb(pid: int) -> float:
    """The most resident memory that a process ever had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


async def come_back(folder: Path, size: int, options: Sequence[str], how: signal.Signals) -> dict[str, float]:
    """Start a daemon on what is there, measure, end it."""
    began = time.monotonic()
    daemon, url = await start(folder, *options)
    ready = time.monotonic() - began
    try:
        async with listening(url, size) as (_, signs), asyncio.timeout(LIMIT):
            await signs.led.wait()
            await signs.marked.wait()
        projector = psutil.Process(daemon.pid)
        [broker] = projector.children()
        times = projector.cpu_times()
        return {
            "ready_s": ready,
            "leading_s": signs.led_at - began,
            "proving_s": signs.marked_at - began,
            "projector_cpu_s": times.user + times.system,
            "projector_peak_mb": peak_mb(daemon.pid),
            "projector_rss_mb": projector.memory_info().rss / 2**20,
            "broker_rss_mb": broker.memory_info().rss / 2**20,
        }
    finally:
        await end(daemon, how)


async def measure(size: int, rounds: int, catalog: str, how: signal.Signals) -> dict[str, float]:
    """Run it; medians."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="adsum-bench-")))
        options: list[str] = []
        if catalog == "postgres":
            server = await asyncio.to_thread(PostgresServer)
            stack.callback(server.close)
            options = ["--catalog", server.dsn()]
        daemon, url = await start(folder, *options)
        async with listening(url, size) as (broker, signs):
            fleet = Fleet(broker, size, SERVICE, heartbeat=100, ttl=300)
            registered = await fleet.register()
            await fleet.beat(1, size / BEATS_A_SECOND)
            async with asyncio.timeout(LIMIT):
                await signs.marked.wait()
        await end(daemon, how)
        found = [await come_back(folder, size, options, how) for _ in range(rounds)]
    medians = {name: statistics.median(one[name] for one in found) for name in found[0]}
    return {"instances": size, "registered_per_s": size / registered} | medians


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--catalog", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    how = signal.SIGKILL if given.kill else signal.SIGTERM
    report(measure(given.instances, given.rounds, given.catalog, how), given.json)


if __name__ == "__main__":
    main()
