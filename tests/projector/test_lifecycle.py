"""What the projector makes of what is said and of silence: on real streams, with a real daemon."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adsum.events.broker import Broker
from adsum.events.lifecycle import Expired, Lapsed, Registered, Resumed
from adsum.events.signals import Departed, Instance, Topology
from adsum.events.streams import TOPOLOGY
from tests.daemons import AdsumDaemon, Service, adsumd, events_of, topology
from tests.making import key
from tests.projector.test_daemon import FREE, connected
from tests.waiting import until

TTL = 1.5


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[AdsumDaemon]:
    """A daemon with everything embedded."""
    async with adsumd(tmp_path / "data", *FREE) as running:
        yield running


@pytest.fixture
async def bus(daemon: AdsumDaemon) -> AsyncIterator[Broker]:
    """A connection to its broker."""
    broker = await connected(daemon.url)
    yield broker
    await broker.close()


async def topology_count(broker: Broker) -> int:
    """How many topology messages were ever stored."""
    info = await broker.stream_info(TOPOLOGY)
    return info.state.last_seq if info else 0


def is_present(seen: Topology | None) -> bool:
    """Whether an instance is there."""
    return isinstance(seen, Instance)


async def test_a_registration_is_announced_with_its_revision(bus: Broker) -> None:
    service = Service(bus, key())
    revision = await service.register()
    seen = await until(lambda: topology(bus, key()))
    assert isinstance(seen, Instance)
    assert (seen.revision, seen.term, seen.liveness, seen.routable) == (revision, service.term, "up", True)


async def test_silence_makes_it_stale_then_gone_with_the_evidence(bus: Broker) -> None:
    service = Service(bus, key(), ttl=TTL)
    await service.register()
    heard_at = time.monotonic()
    stale = await until(
        lambda: topology(bus, key()), lambda seen: isinstance(seen, Instance) and seen.liveness == "stale"
    )
    assert isinstance(stale, Instance)
    assert not stale.routable
    assert TTL <= time.monotonic() - heard_at <= TTL + 2
    gone = await until(lambda: topology(bus, key()), lambda seen: isinstance(seen, Departed))
    assert isinstance(gone, Departed)
    assert gone.reason == "expired"
    assert 2 * TTL <= time.monotonic() - heard_at <= 2 * TTL + 2
    first, lapsed, expired = await events_of(bus, key())
    assert isinstance(first, Registered)
    assert isinstance(lapsed, Lapsed)
    assert isinstance(expired, Expired)
    assert expired.by.kind == "reaper"
    assert (expired.evidence.counter, expired.evidence.ttl) == (1, TTL)
    assert expired.evidence.silent >= 2 * TTL  # rounded to the millisecond


async def test_a_stale_instance_that_is_heard_is_up_again(bus: Broker) -> None:
    service = Service(bus, key(), ttl=TTL)
    await service.register()
    await until(lambda: topology(bus, key()), lambda seen: isinstance(seen, Instance) and seen.liveness == "stale")
    async with service.beating():
        await until(lambda: topology(bus, key()), lambda seen: isinstance(seen, Instance) and seen.liveness == "up")
    assert [type(event) for event in await events_of(bus, key())] == [Registered, Lapsed, Resumed]


async def test_beats_keep_it_up_and_cause_no_topology_message(bus: Broker) -> None:
    """Heartbeats wake nobody (fault 14)."""
    service = Service(bus, key(), ttl=TTL)
    await service.register()
    await until(lambda: topology(bus, key()))
    before = await topology_count(bus)
    async with service.beating():
        started = time.monotonic()
        await until(lambda: time.monotonic() - started, lambda passed: passed > 3 * TTL)
    assert await topology_count(bus) == before
    assert len(await events_of(bus, key())) == 1


async def test_goodbye_and_the_next_life(bus: Broker) -> None:
    service = Service(bus, key())
    await service.register()
    await until(lambda: topology(bus, key()))
    left = await service.deregister()
    gone = await until(lambda: topology(bus, key()), lambda seen: isinstance(seen, Departed))
    assert isinstance(gone, Departed)
    assert (gone.revision, gone.term, gone.reason) == (left, service.term, "deregistered")
    again = await service.register()
    seen = await until(lambda: topology(bus, key()), is_present)
    assert seen is not None
    assert seen.revision == again
