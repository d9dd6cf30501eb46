"""What the tests of leases and watches share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from adsum.clients import Leases, Registry, connect
from adsum.events.broker import Broker
from adsum.events.lifecycle import Event
from adsum.events.log import last_word, say
from adsum.events.names import Key
from adsum.projector.embedded import EmbeddedBroker
from tests.making import key

__all__ = ["HERE", "KEY", "leases", "registry", "say_next"]

HERE = "127.0.0.1:8080"
KEY = key("o-1")


@pytest.fixture
async def registry(nats: EmbeddedBroker, broker: Broker) -> AsyncIterator[Registry]:
    """A process's registry, the streams in place, no adsumd."""
    async with connect(nats.url, name="tested", ping=0.2) as registry:
        await registry.broker.ready(10)
        yield registry


@pytest.fixture
async def leases(registry: Registry) -> Leases:
    """Its leases."""
    return registry.leases()


async def say_next(broker: Broker, event: Event, of: Key = KEY) -> int:
    """Say an event after whatever was said last."""
    word = await last_word(broker, of)
    return await say(broker, of, event, word.sequence if word is not None else 0)
