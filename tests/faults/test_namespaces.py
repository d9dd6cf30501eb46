"""A namespace is marked once it had an instance, also by a leader that finds nothing of it in the topology."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from adsum.clients import Directory, connect
from adsum.events.broker import Broker
from adsum.events.signals import Departed
from adsum.events.streams import TOPOLOGY
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import Service, adsumd, topology
from tests.making import key
from tests.waiting import until

NAMESPACES = ("first", "second")


def proven_anew(directory: Directory, ages: list[float]) -> bool:
    """Whether its age has fallen since the look before."""
    ages.append(directory.age)
    return ages[-1] < ages[-2]


async def test_a_namespace_that_everybody_left_long_ago_is_proven_empty(
    broker: Broker, nats: EmbeddedBroker, tmp_path: Path, catalog: tuple[str, ...]
) -> None:
    """Its tombstones are gone from the topology when the next leader begins; its catalog knows of it."""
    options = ("--nats", nats.url, *catalog)
    async with adsumd(tmp_path / "data", *options):
        for namespace in NAMESPACES:
            service = Service(broker, key(namespace=namespace), heartbeat=100, ttl=300)
            await service.register()
            await until(partial(topology, broker, service.key), bool)
            await service.deregister()
            await until(partial(topology, broker, service.key), lambda told: isinstance(told, Departed))
    await broker._js.purge_stream(TOPOLOGY)  # an hour later the broker has dropped them by itself
    async with (
        adsumd(tmp_path / "data", *options),
        connect(nats.url, namespace=NAMESPACES[-1]) as registry,
        registry.directory("orders") as orders,
    ):
        await until(partial(proven_anew, orders, [orders.age]))
        assert (orders.state, len(orders)) == ("live", 0)
