"""A database that goes away while the daemon runs: the log waits, nothing is lost or doubled."""

from __future__ import annotations

import time
from pathlib import Path

import asyncpg
import pytest

from adsum.events.broker import Broker
from adsum.events.settings import BrokerSettings
from adsum.events.signals import Instance
from adsum.projector.daemon import UNFIT_AFTER
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import Service, adsumd, topology
from tests.databases import PostgresServer
from tests.making import key
from tests.waiting import until


async def folded(dsn: str) -> list[tuple[int, str]]:
    """(sequence, type) of every event in a catalog."""
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch("SELECT sequence, type FROM events ORDER BY sequence")]
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("away", "longer"),
    [("crashed", 0.0), ("paused", 0.0), pytest.param("crashed", UNFIT_AFTER + 3, marks=pytest.mark.long)],
)
async def test_the_log_waits(
    tmp_path: Path, nats: EmbeddedBroker, postgres_server: PostgresServer, away: str, longer: float
) -> None:
    """Also when it is away for so long that the daemon gives the lease back."""
    dsn = postgres_server.dsn(await postgres_server.clone())
    bus = Broker.open(BrokerSettings(url=nats.url), "test")
    await bus.ready(10)
    async with adsumd(tmp_path / "data", "--nats", nats.url, "--catalog", dsn) as daemon:
        await Service(bus, key("before"), heartbeat=5, ttl=300).register()
        await until(lambda: topology(bus, key("before")))
        postgres_server.crash() if away == "crashed" else postgres_server.pause()
        try:
            for n in range(20):
                await Service(bus, key(f"while-{n}"), heartbeat=5, ttl=300).register()
            if away == "crashed":
                await until(lambda: "trying again" in daemon.stderr, seconds=20)
            assert await topology(bus, key("while-0")) is None
            began = time.monotonic()
            await until(lambda: time.monotonic() - began, lambda passed: passed >= longer, seconds=longer + 1)
            assert daemon.stderr.count("trying again") <= 4  # told once, then louder, not each time
        finally:
            postgres_server.start() if away == "crashed" else postgres_server.resume()
        for n in range(20):
            seen = await until(lambda n=n: topology(bus, key(f"while-{n}")), seconds=40)
            assert isinstance(seen, Instance)
        assert await folded(dsn) == [(n, "registered") for n in range(1, 22)]
        assert daemon.process.returncode is None
    assert "Traceback" not in daemon.stderr
    await bus.close()
