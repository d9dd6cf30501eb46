"""The broker's permissions change while all run, and change back: nobody stays deaf, no cache believes the blind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adsum.clients import connect
from adsum.events import driver
from adsum.events.broker import Broker
from adsum.events.streams import EVENTS
from tests.daemons import Service, adsumd
from tests.making import key
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until

from .looking import ticks


def users(publish: str = "", subscribe: str = "") -> str:
    """A configuration with `root`, who may all, and `app`, who may all but these (a list of subjects, in quotes)."""
    may = [f'{what}: {{ allow: ">", deny: [{but}] }}' for what, but in (("publish", publish), ("subscribe", subscribe))]
    app = f"{{ user: app, password: x, permissions: {{ {', '.join(may)} }} }}"
    return f"authorization {{ users: [ {{ user: root, password: x }}, {app} ] }}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A nats-server with both users."""
    server = await Server(tmp_path / "server", users()).start()
    yield server
    await server.stop()


def url(server: Server, user: str) -> str:
    """The server for one of them."""
    return server.url.replace("nats://", f"nats://{user}:x@")


async def waiting(server: Server, id: str) -> tuple[Broker, Service]:
    """A service that is there for long, and its connection."""
    bus = await connected(url(server, "root"))
    service = Service(bus, key(id), heartbeat=100, ttl=300)
    await service.register()
    return bus, service


async def test_a_cache_whose_subscriptions_are_taken_back_hears_again(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes subscriptions back from a connection that stands and never gives them back by itself: they are
    asked for until it allows them again, and the cache is live over the same connection."""
    monkeypatch.setattr(driver, "ASK_AGAIN_AFTER", 0.5)
    async with adsumd(tmp_path / "data", "--nats", url(server, "root")):
        bus, _ = await waiting(server, "a")
        async with connect(url(server, "app")) as registry, registry.directory("orders") as directory:
            await until(lambda: len(directory), (1).__eq__)
            await server.reload(users(subscribe='"adsum.v1.>"'))
            await until(lambda: directory.age > 3, seconds=30)  # no mark was heard any more
            await Service(bus, key("b"), heartbeat=100, ttl=300).register()
            await ticks(bus, 2)
            assert len(directory) == 1
            await server.reload(users())
            await until(lambda: (len(directory), directory.state, directory.age < 2), (2, "live", True).__eq__, 30)
            assert registry.broker.connects == 1
        await bus.close()


async def test_a_leader_that_cannot_read_the_log_proves_nothing(tmp_path: Path, server: Server) -> None:
    """It ticks, and what it announced matches its own marks; but what is in the log since it does not know, so it says
    no marks, and caches turn stale. Once it may read again they are whole and live."""
    async with adsumd(tmp_path / "data", "--nats", url(server, "app")) as daemon:
        bus, _ = await waiting(server, "a")
        async with connect(url(server, "root")) as registry, registry.directory("orders") as directory:
            await until(lambda: len(directory), (1).__eq__)
            await server.reload(
                users(publish=f'"$JS.API.CONSUMER.CREATE.{EVENTS}", "$JS.API.CONSUMER.CREATE.{EVENTS}.>"')
            )
            for consumer in await bus._js.consumers_info(EVENTS):
                await bus.delete_consumer(EVENTS, consumer.name)
            await until(lambda: "reading the log" in daemon.stderr, seconds=30)
            await Service(bus, key("b"), heartbeat=100, ttl=300).register()
            await until(lambda: directory.state, "stale".__eq__, 30)
            await ticks(bus, 1)  # it leads all the same
            assert (len(directory), directory.state) == (1, "stale")
            await server.reload(users())
            await until(lambda: (len(directory), directory.state), (2, "live").__eq__, 30)
        await bus.close()
