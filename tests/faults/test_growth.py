"""Row 16, and how much of the disk a registry takes: heartbeats nothing that grows with time, events a bounded number
of bytes each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.signals import Heartbeat
from adsum.events.streams import BEATS
from benchmarks.growth import EVENTS_A_LIFE, measure, size
from tests.daemons import Service, adsumd
from tests.faults.catalogs import rows
from tests.making import key
from tests.projector.test_daemon import FREE, connected
from tests.waiting import until

FLEET = 300
ROUNDS = 80
LATER = 5
BLOCK = 4 << 20
"""The broker gives the space of old heartbeats back a block at a time; it fills one and keeps one that is half dead."""

LOG_BYTES = 700
CATALOG_BYTES = {"sqlite": 2000, "postgres": 3000}
"""What README and docs/operations.md promise for an event, indexes, history and views included."""


async def beat(bus: Broker, fleet: list[Service], rounds: int) -> None:
    """Everybody beats so many times, as fast as the broker takes it."""
    for _ in range(rounds):
        for service in fleet:
            service.counter += 1
            data = encode(Heartbeat(service.counter))
            await bus.publish(subjects.beat(service.key, service.term), data)
        await bus.flush()


async def heard(dsn: str, fleet: list[Service]) -> int:
    """How many of the fleet the catalog has heard up to their last beat."""
    [(count,)] = await rows(dsn, f"SELECT count(*) FROM heard WHERE counter = {fleet[0].counter}")
    return int(count)


async def test_row_16_heartbeats_take_space_by_instance_and_not_by_time(tmp_path: Path, dsn: str) -> None:
    """After five times as many beats there are as many messages and rows as before, and no more than two blocks."""
    data = tmp_path / "data"
    store = data / "nats" / "store" / "jetstream" / "$G" / "streams" / BEATS
    async with adsumd(data, *FREE, "--catalog", dsn) as daemon:
        bus = await connected(daemon.url)
        fleet = [Service(bus, key(f"f-{n}"), heartbeat=5, ttl=300) for n in range(FLEET)]
        await asyncio.gather(*(service.register() for service in fleet))
        seen: list[tuple[int, int, int]] = []
        for rounds in (ROUNDS, (LATER - 1) * ROUNDS):
            await beat(bus, fleet, rounds)
            await until(lambda: heard(dsn, fleet), lambda count: count == FLEET, seconds=60)
            info = await bus.stream_info(BEATS)
            assert info is not None
            [(count,)] = await rows(dsn, "SELECT count(*) FROM heard")
            seen.append((info.state.messages, info.state.bytes, count))
        (messages, bytes_then, count), (messages_later, bytes_later, count_later) = seen
        assert messages == messages_later == FLEET + 1, seen  # and the tick
        assert count == count_later == FLEET, seen
        assert bytes_later < 1.1 * bytes_then, seen
        written = bytes_later * LATER * ROUNDS
        assert size(store) < 2 * BLOCK + bytes_later < written, (size(store), written)
        await bus.close()


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
async def test_an_event_takes_a_bounded_number_of_bytes(dialect: str) -> None:
    """50 instances, three restarts each."""
    figures = await measure(dialect, 50, 3)
    assert figures["events"] == 50 * (3 * EVENTS_A_LIFE - 2)
    assert figures["topology_messages"] == 50
    assert figures["log_bytes_per_event"] < LOG_BYTES, figures
    assert figures["catalog_bytes_per_event"] < CATALOG_BYTES[dialect], figures


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
async def test_a_week_at_a_thousand_instances_with_daily_restarts(dialect: str) -> None:
    """Folds, and takes no more an event than a day does; adsumd holds what is live, not what was said."""
    figures = await measure(dialect, 1000, 7)
    assert figures["events"] == 1000 * (7 * EVENTS_A_LIFE - 2)
    assert figures["log_bytes_per_event"] < LOG_BYTES, figures
    assert figures["catalog_bytes_per_event"] < CATALOG_BYTES[dialect], figures
    assert figures["adsumd_rss_bytes"] < 150e6, figures
