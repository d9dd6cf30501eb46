"""A cluster of three with replicated streams: the whole path, also when the leader of a stream is killed."""

from __future__ import annotations

import signal
from pathlib import Path

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable
from adsum.events.lifecycle import Registered
from adsum.events.settings import BrokerSettings
from adsum.events.signals import Departed, Instance
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY
from tests.cluster import cluster
from tests.daemons import Service, adsumd, events_of, topology
from tests.making import key
from tests.waiting import until

TTL = 6.0


async def storages(bus: Broker) -> dict[str, tuple[int | None, str]]:
    """(replicas, storage) of each stream."""
    found = {}
    for name in (EVENTS, BEATS, TOPOLOGY):
        info = await bus.stream_info(name)
        assert info is not None
        found[name] = info.config.num_replicas, str(info.config.storage)
    return found


async def try_register(service: Service) -> bool:
    """Register if the cluster takes it now."""
    try:
        await service.register()
    except BrokerUnavailable:
        return False
    return True


async def test_the_whole_path_over_three_nodes_and_a_killed_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        urls = ",".join(node.url for node in nodes)
        async with adsumd(tmp_path / "data", "--nats", urls, "--replicas", "3") as daemon:
            bus = Broker.open(BrokerSettings(url=urls), "test")
            await bus.ready(10)
            assert await storages(bus) == {EVENTS: (3, "file"), BEATS: (3, "memory"), TOPOLOGY: (3, "file")}
            living, dead = Service(bus, key("living"), 1, TTL), Service(bus, key("dead"), 1, TTL)
            await living.register()
            await dead.register()
            async with living.beating():
                await until(lambda: topology(bus, key("living")))
                info = await bus.stream_info(EVENTS)
                assert info is not None
                assert info.cluster is not None
                leader = next(node for n, node in enumerate(nodes) if info.cluster.leader == f"n{n}")
                await leader.stop(signal.SIGKILL)
                late = Service(bus, key("late"), 1, TTL)
                await until(lambda: try_register(late), seconds=30)
                gone = await until(
                    lambda: topology(bus, key("dead")), lambda seen: isinstance(seen, Departed), seconds=40
                )
                assert gone is not None
                await until(lambda: topology(bus, key("living")), lambda seen: isinstance(seen, Instance))
                assert [type(event) for event in await events_of(bus, key("living"))] == [Registered], daemon.stderr
            await bus.close()
