"""Who died leaves, whoever was down when it died and however often the registry restarts."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from adsum.events.broker import Broker
from adsum.events.signals import Departed
from adsum.events.streams import BEATS
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import Service, adsumd, topology
from tests.making import key
from tests.waiting import until

from .looking import is_gone, is_up, ticks
from .owners import TTL, one, owner


@pytest.mark.parametrize(
    ("dsn", "forgotten"),
    [
        pytest.param("sqlite", True, id="sqlite-heartbeats-forgotten"),
        pytest.param("sqlite", False, id="sqlite", marks=pytest.mark.long),
        pytest.param("postgresql", False, id="postgresql"),
    ],
    indirect=["dsn"],
)
async def test_row_01_killed_while_the_registry_is_down(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, catalog: tuple[str, ...], forgotten: bool
) -> None:
    """An instance that dies while projector and reaper are down is gone within two TTLs after they return, and only
    it: who lives is there all the while. Also when the broker forgot all heartbeats meanwhile, as a whole cluster
    does that is restarted.
    """
    options = ("--nats", nats.url, *catalog)
    async with owner(nats.url, one("dies")) as dies, owner(nats.url, one("lives")) as lives:
        async with adsumd(tmp_path / "data", *options) as daemon:
            for id in ("dies", "lives"):
                await until(lambda id=id: topology(broker, key(id)), is_up)
            daemon.signal(signal.SIGKILL)
            await daemon.ended()
            await dies.kill()
        if forgotten:
            await broker._js.purge_stream(BEATS)
        async with adsumd(tmp_path / "data", *options):
            returned = time.monotonic()
            gone = await until(lambda: topology(broker, key("dies")), is_gone, seconds=30)
            assert isinstance(gone, Departed)
            assert gone.reason == "expired"
            assert time.monotonic() - returned < 2 * TTL + 10  # takeover of the dead leader's lease included
            assert is_up(await topology(broker, key("lives")))
        assert len({term for _, term in lives.states("lives") if term}) == 1


@pytest.mark.parametrize(
    ("dsn", "stop"),
    [
        pytest.param("sqlite", signal.SIGKILL, id="sqlite-killed"),
        pytest.param("sqlite", signal.SIGTERM, id="sqlite-ended", marks=pytest.mark.long),
        pytest.param("postgresql", signal.SIGKILL, id="postgresql-killed", marks=pytest.mark.long),
        pytest.param("postgresql", signal.SIGTERM, id="postgresql-ended", marks=pytest.mark.long),
    ],
    indirect=["dsn"],
)
async def test_row_06_dead_although_the_registry_restarts_all_the_time(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker, catalog: tuple[str, ...], stop: signal.Signals
) -> None:
    """Grace is not renewed at each start: a run of adsumd that reads n ticks ages the dead by n - 2 seconds at least,
    however it ends. So with runs of three ticks, about half a TTL, it takes no more than two runs a second of the TTL.
    """
    ttl = 3.0
    options = ("--nats", nats.url, *catalog)
    async with adsumd(tmp_path / "data", *options):
        await Service(broker, key(), heartbeat=ttl / 3, ttl=ttl).register()
        await until(lambda: topology(broker, key()), is_up)
    runs = 0
    while not is_gone(await topology(broker, key())):
        runs += 1
        assert runs <= 2 * ttl + 1, await topology(broker, key())
        async with adsumd(tmp_path / "data", *options) as daemon:
            await ticks(broker, 3)
            daemon.signal(stop)
            await daemon.ended()
