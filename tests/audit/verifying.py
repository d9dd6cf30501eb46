"""Verifying in tests: against an adsumd that leads and has told everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adsum.events.broker import Broker
from adsum.events.tools import Look, Verified
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.verify import verify
from tests.daemons import AdsumDaemon, Service, adsumd, topology
from tests.making import key
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until

__all__ = ["told", "unheard", "verified"]


def unheard(done: int, total: int) -> None:
    """No progress is shown."""


async def verified(
    broker: Broker,
    dsn: str | None = None,
    head: tuple[str, int | None] | None = None,
    cache: Look | None = None,
) -> Verified:
    """Verify it."""
    return await verify(broker, catalog=dsn, head=head, cache=cache, base=(), progress=unheard)


@asynccontextmanager
async def told(nats: EmbeddedBroker | Server, folder: Path, *arguments: str) -> AsyncIterator[AdsumDaemon]:
    """An adsumd that leads and has told everything of the log."""
    async with adsumd(folder / "data", "--nats", nats.url, *arguments) as daemon:
        bus, marker = await connected(nats.url), key("marker", "zz-marker")
        await Service(bus, marker, heartbeat=100, ttl=300).register()
        await until(lambda: topology(bus, marker), seconds=30)
        await bus.close()
        yield daemon
