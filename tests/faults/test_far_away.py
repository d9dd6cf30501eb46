"""A broker that is far away: answers take longer than half a second. It costs time, and nobody's verdict."""

from __future__ import annotations

from pathlib import Path

from adsum.events.broker import Broker
from adsum.events.lifecycle import Registered
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import Service, adsumd, events_of, topology
from tests.making import key
from tests.proxy import proxy_to
from tests.waiting import until

from .looking import is_gone, ticks

ONE_WAY = 0.3
"""Seconds that whatever adsumd says or hears is on its way."""


async def test_the_dead_leave_although_the_broker_is_far_away(
    tmp_path: Path, nats: EmbeddedBroker, broker: Broker
) -> None:
    """Whoever is near enough to the broker to lead is near enough to judge: the dead go, and the living stay."""
    dead, alive = (Service(broker, key(id)) for id in ("dead", "alive"))
    async with proxy_to(nats.url) as proxy, adsumd(tmp_path / "data", "--nats", proxy.url):
        await ticks(broker, 1)
        proxy.delay = {"up": ONE_WAY, "down": ONE_WAY}
        await dead.register()
        await alive.register()
        async with alive.beating():
            await until(lambda: topology(broker, dead.key), is_gone, seconds=60)
            assert [type(event) for event in await events_of(broker, alive.key)] == [Registered]
        proxy.heal()
