"""What the tests of registrations and directories share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adsum.clients import Registry, connect
from adsum.events.broker import Broker
from adsum.events.streams import read_epoch
from adsum.projector.embedded import EmbeddedBroker

from .announcer import Announcer


@pytest.fixture
async def registry(nats: EmbeddedBroker, broker: Broker) -> AsyncIterator[Registry]:
    """A process's registry, the streams in place."""
    async with connect(nats.url, name="tested", ping=0.2) as registry:
        await registry.broker.ready(10)
        yield registry


@pytest.fixture
async def announcer(broker: Broker) -> Announcer:
    """The projector's side, in the log's epoch."""
    return Announcer(broker, await read_epoch(broker))
