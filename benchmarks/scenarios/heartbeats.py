"""Heartbeats of many instances, sent by one process for all of them: how many a second, at what cost.

A sender that goes flat out has 2,000 heartbeats at a time acknowledged before the next ones. A service does not have
its heartbeats acknowledged by adsum, and what counts is that the projector hears them. So `adsum` is sent 20,000 a
second, evenly spread, and it is told how long after the last one all of them stood in the catalog (which takes them
down each second), and how many false verdicts there were (nothing may be added to the log while everybody beats).
`adsum flat out` has the last of every 2,000 acknowledged, as the stream keeps their order; its projector reads only the
last of each instance where it falls behind.
"""

from __future__ import annotations

import asyncio
import math
import resource
import sqlite3
import time
from functools import partial
from pathlib import Path

from adsum.events.streams import EVENTS
from benchmarks.children import Child, Pipe
from benchmarks.filling import TTL, all_visible
from benchmarks.fleet import Fleet
from benchmarks.observing import spent
from benchmarks.peers import Absent, Client, client_of, running
from benchmarks.peers.adsum import Client as AdsumClient
from benchmarks.peers.client import windowed
from benchmarks.peers.zookeeper_raw import Session, open_session
from benchmarks.scenario import Curve, Figures, Scenario, against

TOGETHER = 2000
RATE = 20_000.0
FILL_LIMIT = 600.0
HEAR_LIMIT = 60.0
SESSION = 40.0
SESSIONS_AT_ONCE = 40
"""ZooKeeper's queue of new connections holds fifty; beyond it a SYN is sent again after a second."""
SPARE_FILES = 500


async def beat(pipe: Pipe, kind: str, address: str, count: int, seconds: float, paced: bool) -> None:
    """(heartbeats, seconds, CPU seconds, by how much the sender fell behind, the least last counter)."""
    async with client_of(kind, address) as one:
        await one.register_many(range(count), TTL)
        await one.heartbeat(range(count))  # so that what is done at the first one is not measured
        pipe.tell()
        await pipe.hear()
        used, began = spent(), time.monotonic()
        if paced:
            assert isinstance(one, AdsumClient)
            sent, late = await _paced(one.fleet, seconds)
        else:
            sent, late = await _flat_out(one, count, seconds), 0.0
        lasted = time.monotonic() - began
        calls = 1 if paced else math.ceil(count / TOGETHER)  # each has a counter of its own
        counter = one.fleet.counter - calls + 1 if isinstance(one, AdsumClient) else 0
        pipe.tell((sent, lasted, spent() - used, late, counter))
        await pipe.hear()


async def _paced(fleet: Fleet, seconds: float) -> tuple[int, float]:
    """(heartbeats, by how much the sender fell behind)."""
    count = len(fleet.keys)
    rounds = max(1, round(RATE * seconds / count))
    late = await fleet.beat(rounds, count / RATE)
    return rounds * count, late


async def _flat_out(one: Client, count: int, seconds: float) -> int:
    """Whole rounds, so that each instance beats as often."""
    sent, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        for first in range(0, count, TOGETHER):
            await one.heartbeat(range(first, min(first + TOGETHER, count)))
        sent += count
    return sent


async def measure(kind: str, folder: Path, *, instances: int, seconds: float, paced: bool = False) -> Figures:
    """CPU seconds are those per 1,000 heartbeats."""
    async with (
        running(kind, folder) as server,
        Child(beat, kind=kind, address=server.address, count=instances, seconds=seconds, paced=paced) as child,
    ):
        await child.hear(FILL_LIMIT)
        await all_visible(kind, server, instances)  # so that registering is not measured
        said = await _end_of_log(server.address) if kind == "adsum" else 0
        used = server.cpu()
        sent, lasted, cpu, late, counter = await child.ask()
        figures: Figures = {}
        if kind == "adsum":
            behind = await _all_heard(folder / "data" / "catalog.db", instances, counter)
            figures = {"behind": behind, "late": late, "false": await _end_of_log(server.address) - said}
        cost = {part: (now - used[part]) * 1000 / sent for part, now in server.cpu().items()}
    parts = {f"{part}_cpu": each for part, each in cost.items()}
    return {
        "rate": sent / lasted,
        "servers_cpu": sum(cost.values()),
        "client_cpu": cpu * 1000 / sent,
        **parts,
        **figures,
    }


async def ping(pipe: Pipe, address: str, count: int, seconds: float) -> None:
    """A ZooKeeper session an instance; each pings again as soon as it is answered: (pings, seconds, CPU seconds)."""
    answers, flooding = 0, False

    def answered(session: Session) -> None:
        nonlocal answers
        answers += 1
        if flooding:
            session.ping()

    sessions: list[Session] = []

    async def one() -> None:
        sessions.append(await open_session(address, SESSION, answered))

    await windowed((one() for _ in range(count)), SESSIONS_AT_ONCE)
    pipe.tell()
    await pipe.hear()
    used, began, flooding = spent(), time.monotonic(), True
    for session in sessions:
        session.ping()
    await asyncio.sleep(seconds)
    pipe.tell((answers, time.monotonic() - began, spent() - used))
    await pipe.hear()


async def measure_sessions(folder: Path, *, instances: int, seconds: float) -> Figures:
    """ZooKeeper's heartbeat is the ping of a session, so an instance is a connection."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if instances + SPARE_FILES > files:
        raise Absent(f"ZooKeeper needs a connection an instance, and a process may open {files:,} files here")
    async with (
        running("zookeeper", folder) as server,
        Child(ping, address=server.address, count=instances, seconds=seconds) as child,
    ):
        await child.hear()
        used = server.cpu()["server"]
        sent, lasted, cpu = await child.ask()
        cost = server.cpu()["server"] - used
    return {"rate": sent / lasted, "servers_cpu": cost * 1000 / sent, "client_cpu": cpu * 1000 / sent}


async def _end_of_log(address: str) -> int:
    async with client_of("adsum", address) as one:
        assert isinstance(one, AdsumClient)
        info = await one.registry.broker.stream_info(EVENTS)
    return info.state.last_seq if info is not None else 0


async def _all_heard(catalog: Path, instances: int, counter: int) -> float:
    """Seconds from now until the catalog holds the last heartbeat of every instance: how far back the projector is."""
    began = time.monotonic()
    with sqlite3.connect(f"file:{catalog}?mode=ro", uri=True) as database:
        query = "SELECT count(*) FROM heard WHERE counter >= ?"
        while database.execute(query, (counter,)).fetchone()[0] < instances:
            if time.monotonic() - began > HEAR_LIMIT:
                raise RuntimeError("the projector fell behind")
            await asyncio.sleep(0.05)
    return time.monotonic() - began


SCENARIO = Scenario(
    title="heartbeats a second, and what they cost",
    columns={
        "rate": "heartbeats/s",
        "servers_cpu": "servers' CPU s / 1,000",
        "broker_cpu": "broker's",
        "projector_cpu": "projector's",
        "client_cpu": "client's",
        "behind": "all heard after s",
        "false": "false verdicts",
    },
    contenders={
        "adsum": partial(measure, "adsum", paced=True),
        "adsum flat out": partial(measure, "adsum"),
        **against(measure, "etcd", "etcd-channels"),
        "zookeeper-raw": measure_sessions,
        **against(measure, "redis-poll", "sqlite", "postgres"),
    },
    sizes={
        "tiny": [{"instances": 200, "seconds": 1.0}],
        "quick": [{"instances": 10_000, "seconds": 5.0}],
        "full": [{"instances": count, "seconds": 15.0} for count in (10_000, 50_000, 100_000)],
    },
    notes={
        "adsum": f"{RATE:,.0f} a second; not acknowledged, a lost one is followed by the next",
        "adsum flat out": "the same registry, as fast as its broker stores them",
        "etcd": "one keep-alive stream",
        "etcd-channels": "four keep-alive streams",
        "zookeeper-raw": "a session an instance; each pings again once it is answered",
        "redis-poll": "PEXPIRE, pipelined",
        "sqlite": "500 rows a transaction; the CPU is the client's",
        "postgres": "500 rows a statement, 4 connections",
    },
    curves=[Curve("growth", "heartbeats", "instances", "servers_cpu", "servers' CPU s / 1,000 heartbeats")],
)
