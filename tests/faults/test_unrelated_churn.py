"""Nobody hears of what they do not follow: row 14."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.clients import Directory, Registry, connect
from adsum.events.broker import Broker
from adsum.events.streams import BEATS, TOPOLOGY
from tests.daemons import Service, adsumd
from tests.faults.looking import ticks
from tests.making import description, key
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until

CHURN = 300
OWN = "adsum.v1.default.change.quiet.*"


async def sent_to(server: Server, name: str) -> int:
    """How many messages the server has sent to the connection of this name."""
    told = await server.monitor("connz")
    [found] = [one["out_msgs"] for one in told["connections"] if one.get("name") == name]
    return int(found)


def marks_heard(registry: Registry, directory: Directory) -> int:
    """How many marks were delivered to it."""
    shared = [(subject, one.subscription) for subject, one in directory._subscriptions._shared.items()]
    subscriptions = [*shared, ("adsum.v1.default.mark", directory._marks._subscription)]
    return sum(one.delivered for subject, one in subscriptions if one is not None and ".mark" in subject)


async def last_sequence(bus: Broker, stream: str) -> int:
    info = await bus.stream_info(stream)
    assert info is not None
    return int(info.state.last_seq)


@pytest.fixture
async def watched(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A server that can be asked, and an adsumd."""
    server = await Server(tmp_path / "server", 'http: "127.0.0.1:-1"').start()
    try:
        async with adsumd(tmp_path / "data", "--nats", server.url):
            yield server
    finally:
        await server.stop()


async def test_row_14_churn_of_one_service_is_not_heard_by_who_follows_another(watched: Server) -> None:
    """While a service changes hundreds of times, the server sends a client that follows another service marks and
    nothing else, and wakes none of its tasks; who follows a capability gets the whole namespace and shows its own."""
    async with AsyncExitStack() as stack:
        bus = await connected(watched.url)
        stack.push_async_callback(bus.close)
        follower = await stack.enter_async_context(connect(watched.url, name="follower", ping=60))
        hearer = await stack.enter_async_context(connect(watched.url, name="hearer", ping=60))
        restless = Service(bus, key("r", "restless"), heartbeat=100, ttl=300)
        able = Service(bus, key("c", "restless"), heartbeat=100, ttl=300)
        able.said = description(heartbeat=100, ttl=300, capabilities=["pay"])
        for service in (restless, able, Service(bus, key("q", "quiet"), heartbeat=100, ttl=300)):
            await service.register()
        quiet = await stack.enter_async_context(follower.directory("quiet"))
        payers = await stack.enter_async_context(hearer.directory(capability="pay"))
        await until(lambda: (len(quiet), len(payers)), (1, 1).__eq__)
        changes = quiet.changes(initial=False)
        sent, marks = await sent_to(watched, "follower"), marks_heard(follower, quiet)
        heard = quiet._subscriptions._shared[OWN].subscription.delivered
        shown, told, stored = quiet.instances(), await sent_to(watched, "hearer"), await last_sequence(bus, TOPOLOGY)
        for _ in range(CHURN):
            await restless.register()
        revision = await able.register()
        await until(lambda: [one.revision for one in payers.instances()], [revision].__eq__, seconds=30)

        async def surplus() -> int:
            """Messages sent that are no marks, when the count of the server and that of the client agree."""
            return await sent_to(watched, "follower") - sent - (marks_heard(follower, quiet) - marks)

        await until(surplus, (0).__eq__)
        assert not changes._pending
        assert quiet.instances() is shown
        assert quiet._subscriptions._shared[OWN].subscription.delivered == heard
        announced = await last_sequence(bus, TOPOLOGY) - stored
        assert announced > CHURN / 10  # what follows fast upon another is told as one
        assert await sent_to(watched, "hearer") - told >= announced
        assert payers.state == quiet.state == "live"


async def test_row_14_heartbeats_are_told_to_nobody(watched: Server) -> None:
    """However many beats are stored, the topology does not move."""
    bus = await connected(watched.url)
    services = [Service(bus, key(f"b{n}"), heartbeat=0.1, ttl=300) for n in range(20)]
    for service in services:
        await service.register()
    async with connect(watched.url) as registry, registry.directory() as directory, AsyncExitStack() as stack:
        await until(lambda: len(directory), len(services).__eq__)
        topology, beats = await last_sequence(bus, TOPOLOGY), await last_sequence(bus, BEATS)
        changes = directory.changes(initial=False)
        for service in services:
            await stack.enter_async_context(service.beating())
        await ticks(bus, 4)
        assert await last_sequence(bus, BEATS) > beats + 100
        assert await last_sequence(bus, TOPOLOGY) == topology
        assert not changes._pending
        assert directory.state == "live"
    await asyncio.wait_for(bus.close(), 10)
