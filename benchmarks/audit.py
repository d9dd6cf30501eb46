"""How fast a catalog is rebuilt from the log, and verified against it, and with how much memory.

    python -m benchmarks.audit [sqlite] [postgres] [--events N] [--json]

The commands themselves are run, `adsum rebuild` and `adsum verify`, on a log of 2,000 instances that live side by side;
every word changes something. Broker, PostgreSQL (from the wheel, its default settings) and command share the machine.
Memory is the command's peak of resident memory; run it with two numbers of events to see whether it grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.names import Key
from adsum.events.reader import Message
from adsum.events.streams import EVENTS, ensure_streams
from tests.catalog.story import Story, key
from tests.databases import PostgresServer
from tests.servers import Server

from .running import report

TOGETHER = 3000
LIVING = 2000


def story() -> Iterator[Message]:
    """Lives side by side: each comes, changes a few times and goes, or is followed by its next life."""
    told, dice = Story(), random.Random(1)
    words: list[Iterator[Message]] = [life(told, key(number, f"s-{number % 50}")) for number in range(LIVING)]
    while True:
        yield next(words[dice.randrange(LIVING)])


def life(told: Story, who: Key) -> Iterator[Message]:
    """One instance, for ever."""
    for number in count():
        yield told.register(who)
        for _ in range(2):
            yield told.lapse(who)
            yield told.resume(who)
        yield told.update(who, version=str(number))
        yield told.health(who, "slow")
        yield told.update(who, version=f"{number}b")
        yield told.health(who, "slower")
        if number % 3:
            yield told.leave(who)


async def fill(url: str, events: int) -> None:
    """Say so many events."""
    bus = Broker.open(BrokerSettings(url=url), "benchmark")
    await bus.ready(10)
    await ensure_streams(bus)
    words = story()
    for first in range(0, events, TOGETHER):
        part = [next(words) for _ in range(min(TOGETHER, events - first))]
        await asyncio.gather(*[await bus.store_later(EVENTS, one.subject, one.data, {}) for one in part])
    await bus.close()


def run(url: str, *arguments: str) -> tuple[dict[str, Any], float, float]:
    """What the command says, its peak of memory in MB, and its seconds of processor time."""
    command = [Path(sysconfig.get_path("scripts")) / "adsum", *arguments, "--json"]
    with subprocess.Popen(command, env={**os.environ, "ADSUM_NATS": url}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if not told:
        sys.exit(f"{arguments} ended with {process.returncode}")
    return json.loads(told), usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


@asynccontextmanager
async def log_of(events: int, folder: Path) -> AsyncIterator[str]:
    """The URL of a broker with such a log."""
    server = await Server(folder / "broker").start()
    try:
        await fill(server.url, events)
        yield server.url
    finally:
        await server.stop()


async def measure(databases: list[str], events: int) -> dict[str, float]:
    """Everything, on one log."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        async with log_of(events, Path(name)) as url:
            if "sqlite" in databases:
                await both(figures, "sqlite", url, f"sqlite:///{name}/catalog.db")
            if "postgres" in databases:
                server = await asyncio.to_thread(PostgresServer)
                try:
                    await both(figures, "postgres", url, server.dsn())
                finally:
                    server.close()
    return figures


async def both(figures: dict[str, float], name: str, url: str, dsn: str) -> None:
    """Rebuild and verify. Nobody announces on this broker, so the topology differs; that is not in the figures."""
    done, found = await figure(f"{name} rebuild", url, "rebuild", "--into", dsn)
    figures |= found
    verified, found = await figure(f"{name} verify", url, "verify", "--catalog", dsn)
    figures |= found
    wrong = [one for one in verified["differences"] if one["part"] != "topology"]
    if wrong or verified["head"] != done["head"]:
        sys.exit(f"the catalog is not what the log says: {wrong}")


async def figure(name: str, url: str, *arguments: str) -> tuple[dict[str, Any], dict[str, float]]:
    """What a command says, and its figures."""
    told, peak, seconds = await asyncio.to_thread(run, url, *arguments)
    each = seconds * 1e6 / max(1, told.get("events", told.get("messages")))
    return told, {f"{name} events/s": told["rate"], f"{name} CPU us/event": each, f"{name} peak MB": peak}


def main() -> None:
    """Run what the command line names; both if it names none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    report(measure(asked.databases, asked.events), asked.json)


if __name__ == "__main__":
    main()
