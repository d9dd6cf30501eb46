"""What a week of the registry takes: bytes of log and of catalog, how fast it is folded anew, memory of adsumd.

    python -m benchmarks.growth [sqlite|postgres] [--instances 1000] [--restarts 7] [--json]

Each instance lives `restarts` lives, each of 14 events: registered, updated, four times critical and passing again,
stale and back, draining, deregistered (the last life goes on). The log is told first, conditional like every real
event, into a broker on its own; then an adsumd with an empty catalog folds it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncpg
import psutil

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_tick, encode
from adsum.events.description import Endpoint, describe
from adsum.events.ids import new_id
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Event,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Resumed,
    Silence,
    Updated,
)
from adsum.events.names import Key
from adsum.events.settings import BrokerSettings
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, ensure_streams
from adsum.projector.embedded import EmbeddedBroker
from benchmarks.running import report, start
from tests.databases import PostgresServer

__all__ = ["EVENTS_A_LIFE", "measure"]

EVENTS_A_LIFE = 14
TOGETHER = 500
FOLD_LIMIT = 600.0
_EVIDENCE = Silence(counter=4711, silent=15.75, ttl=15.0)


def life(number: int, last: bool) -> Iterator[Event]:
    """All that is said of one life; TTLs are long so that nobody is judged while it is measured."""
    term, owner, reaper = new_id(), Author("owner", f"orders-{number}"), Author("reaper", "node-1-7c9e6679f0bb")
    described = describe(
        [Endpoint(host=f"10.0.{number % 250}.{number % 200}", port=8080, protocol="http")],
        capabilities=["payments", "refunds"],
        metadata={"pod": f"orders-7f9c4-{number}", "region": "eu-1"},
        version="1.42.0",
        zone="a",
        heartbeat=5,
        ttl=1500,
    )
    yield Registered(id=term, term=term, by=owner, instance=described)
    yield Updated(id=new_id(), term=term, by=owner, instance=described)
    for _ in range(4):
        yield HealthChanged(id=new_id(), term=term, by=owner, health="critical", reason="the pool is exhausted")
        yield HealthChanged(id=new_id(), term=term, by=owner, health="passing")
    yield Lapsed(id=new_id(), term=term, by=reaper, evidence=_EVIDENCE)
    yield Resumed(id=new_id(), term=term, by=reaper, evidence=_EVIDENCE)
    if not last:
        yield ModeChanged(id=new_id(), term=term, by=owner, mode="draining", reason="new version")
        yield Deregistered(id=new_id(), term=term, by=owner)


async def tell(broker: Broker, instances: int, restarts: int) -> None:
    """The whole log, so many publishes in flight as there are instances, at most TOGETHER."""
    keys = [Key("default", f"service-{n % 20}", f"i-{n:05}") for n in range(instances)]
    last = [0] * instances
    for restart in range(restarts):
        lives = [life(n, restart == restarts - 1) for n in range(instances)]
        for step in zip(*lives, strict=True):
            for first in range(0, instances, TOGETHER):
                part = range(first, min(first + TOGETHER, instances))
                told = [await _say(broker, keys[n], step[n], last[n]) for n in part]
                last[part.start : part.stop] = await asyncio.gather(*told)


async def _say(broker: Broker, key: Key, event: Event, after: int) -> asyncio.Future[int]:
    headers = {"Nats-Msg-Id": event.id, "Nats-Expected-Last-Subject-Sequence": str(after)}
    return await broker.store_later(EVENTS, subjects.event(key), encode(event), headers)


async def told(data: Path, instances: int, restarts: int) -> dict[str, float]:
    """Tell the log into the broker's folder of `data`; events, bytes and events a second."""
    server = await EmbeddedBroker.start(data, port=0)
    try:
        broker = Broker.open(BrokerSettings(url=server.url), "growth")
        await broker.ready(10)
        await ensure_streams(broker)
        began = time.perf_counter()
        await tell(broker, instances, restarts)
        took = time.perf_counter() - began
        info = await broker.stream_info(EVENTS)
        await broker.close()
    finally:
        await server.stop()
    assert info is not None
    events = info.state.messages
    return {"events": events, "told_per_s": events / took, "log_bytes": size(data / "nats" / "store")}


async def folded(folder: Path, dsn: str, events: int) -> dict[str, float]:
    """Let an adsumd fold it into an empty catalog; seconds from its start, and its memory then."""
    began = time.perf_counter()
    process, url = await start(folder, "--catalog", dsn)
    try:
        broker = Broker.open(BrokerSettings(url=url), "growth")
        await broker.ready(10)
        while await _revision(broker) < events:
            if time.perf_counter() - began > FOLD_LIMIT:
                raise RuntimeError(f"not folded within {FOLD_LIMIT:g} s")
            await asyncio.sleep(0.1)
        took = time.perf_counter() - began
        memory = psutil.Process(process.pid).memory_info().rss
        topology = await broker.stream_info(TOPOLOGY)
        await broker.close()
    finally:
        process.terminate()
        await process.wait()
    announced = topology.state.messages if topology else 0
    return {"folded_per_s": events / took, "adsumd_rss_bytes": memory, "topology_messages": announced}


async def _revision(broker: Broker) -> int:
    """How far the leader says that it told."""
    raw = await broker.last_message(BEATS, subjects.TICK)
    return decode_tick(raw.data or b"").announced if raw is not None else 0


def size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


async def measure(dialect: str, instances: int, restarts: int) -> dict[str, float]:
    """All of it, in one of the databases."""
    with tempfile.TemporaryDirectory(prefix="adsum-bench-") as folder:
        figures = await told(Path(folder) / "data", instances, restarts)
        events = round(figures["events"])
        if dialect == "sqlite":
            file = Path(folder) / "catalog.db"
            figures |= await folded(Path(folder), f"sqlite:///{file}", events)
            figures["catalog_bytes"] = size(file)
        else:
            figures |= await _in_postgres(Path(folder), events)
    figures["log_bytes_per_event"] = figures["log_bytes"] / events
    figures["catalog_bytes_per_event"] = figures["catalog_bytes"] / events
    return figures


async def _in_postgres(folder: Path, events: int) -> dict[str, float]:
    """The bytes are those above an empty database's."""
    server = PostgresServer()
    try:
        dsn = server.dsn(await server.create())
        empty = await _database_size(dsn)
        figures = await folded(folder, dsn, events)
        figures["catalog_bytes"] = await _database_size(dsn) - empty
    finally:
        server.close()
    return figures


async def _database_size(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(await connection.fetchval("SELECT pg_database_size(current_database())"))
    finally:
        await connection.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", nargs="?", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--restarts", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    report(measure(given.database, given.instances, given.restarts), given.json)


if __name__ == "__main__":
    main()
