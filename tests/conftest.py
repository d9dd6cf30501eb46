"""Real servers for the tests: a nats-server a test, a PostgreSQL a run, a database of it a test."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.streams import ensure_streams
from adsum.projector.embedded import EmbeddedBroker

T = TypeVar("T")


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[EmbeddedBroker]:
    """A nats-server of the test's own, on a free port."""
    server = await EmbeddedBroker.start(tmp_path / "broker", port=0)
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
