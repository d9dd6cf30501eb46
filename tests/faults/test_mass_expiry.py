"""The guard against mass expiry: it holds where most of a service falls silent, says so, and lets go in time."""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from adsum.clients import connect
from adsum.events.broker import Broker
from adsum.events.lifecycle import Expired
from adsum.projector.clock import TICK_INTERVAL
from adsum.projector.embedded import EmbeddedBroker
from tests.cli.programs import Adsum
from tests.daemons import Service, adsumd
from tests.making import key
from tests.observing import fleet, last_tick, verdicts_on
from tests.waiting import until

TTL = 0.6
HOLD = 4
"""TTLs for which expiry is held back, as the README says."""
SLACK = 6.0
"""Observed seconds for which a verdict may wait for its tick, and for a machine that is busy."""


async def die_at_once(bus: Broker, service: str, count: int) -> None:
    """So many instances of a service whose last heartbeats come together."""
    dying = [Service(bus, key(f"dead-{n}", service), heartbeat=TTL / 2, ttl=TTL) for n in range(count)]
    for instance in dying:
        await instance.register()
    for instance in dying:
        await instance.beat()


async def silences(bus: Broker, service: str) -> list[float]:
    """After how many observed seconds each dead instance of a service was said to be gone."""
    return [event.evidence.silent for _, event in await verdicts_on(bus, service) if isinstance(event, Expired)]


def check_bound(found: list[float], bound: float) -> None:
    """They were gone soon after the bound and not before (a tick may have come between two last heartbeats)."""
    assert min(found) > bound - TICK_INTERVAL
    assert max(found) < bound + SLACK


@pytest.mark.parametrize("restarts", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "restarted"])
async def test_row_07_a_mass_expiry_is_held_and_said_and_ends(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, restarts: bool
) -> None:
    """30 % of a service that die leave at once; 80 % are held for four TTLs, seen in status and log, then leave."""
    async with AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(adsumd(tmp_path / "data", "--nats", nats.url))
        registry = await stack.enter_async_context(connect(nats.url, ping=0.25))
        await stack.enter_async_context(fleet(registry, 7, "third", heartbeat=0.5, ttl=3))
        await stack.enter_async_context(fleet(registry, 2, "most", heartbeat=0.5, ttl=3))
        await die_at_once(broker, "third", 3)
        await die_at_once(broker, "most", 8)
        told = partial(Adsum(nats.url), "status", "--json")
        await until(told, lambda status: (status.json["leader"] or {}).get("held") == ["default/most"], seconds=20)
        assert "default/most: most of it fell silent at once; holding back its expiry" in daemon.stderr
        if restarts:
            daemon.signal(signal.SIGTERM)
            await daemon.ended()
            daemon = await stack.enter_async_context(adsumd(tmp_path / "data", "--nats", nats.url))
        await until(lambda: silences(broker, "third"), lambda found: len(found) == 3)
        await until(lambda: silences(broker, "most"), lambda found: len(found) == 8, seconds=30)
        await until(lambda: last_tick(broker), lambda tick: tick is not None and tick.held == ())
        assert "default/most: the hold on its expiry is over" in daemon.stderr
        assert "default/third: most of it" not in daemon.stderr
        verdicts = [*await verdicts_on(broker, "third"), *await verdicts_on(broker, "most")]
        assert {of.id.partition("-")[0] for of, _ in verdicts} == {"dead"}
        check_bound(await silences(broker, "third"), 2 * TTL)
        check_bound(await silences(broker, "most"), (2 + HOLD) * TTL)
