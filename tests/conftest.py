"""Real servers for the tests: a nats-server a test, a PostgreSQL a run, a database of it a test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.streams import ensure_streams
from adsum.projector.embedded import EmbeddedBroker
from tests.cli.programs import free_port

# In CI the same examples every time; at a desk other ones every time, and what fails is told as it can be repeated.
settings.register_profile("adsum", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("adsum")


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[EmbeddedBroker]:
    """A nats-server of the test's own, on a free port that stays its own while it is restarted."""
    server = await EmbeddedBroker.start(tmp_path / "broker", port=free_port())
    yield server
    await server.stop()


@pytest.fixture
async def broker(nats: EmbeddedBroker) -> AsyncIterator[Broker]:
    """A connection to it, the streams in place."""
    connection = Broker.open(BrokerSettings(url=nats.url), "test")
    await connection.ready(10)
    await ensure_streams(connection)
    yield connection
    await connection.close()
