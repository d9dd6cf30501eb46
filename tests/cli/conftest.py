"""The command against a real broker, and where a test asks for it a real adsumd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adsum.events.broker import Broker
from adsum.projector.embedded import EmbeddedBroker

from .programs import SCRIPTS, Adsum, environment, free_port, start


@pytest.fixture
async def adsum(nats: EmbeddedBroker, broker: Broker) -> AsyncIterator[Adsum]:
    """The command, and a broker with the streams but without adsumd."""
    command = Adsum(nats.url)
    yield command
    await command.stop()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Adsum]:
    """The command, and a broker with adsumd."""
    port = free_port()
    url = f"nats://127.0.0.1:{port}"
    daemon = await start(
        [str(SCRIPTS / "adsumd"), "--data", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}"], environment(url)
    )
    try:
        await daemon.prints("nats://", 30)
        command = Adsum(url, daemon)
        yield command
        await command.stop()
        if daemon.process.returncode is None:
            daemon.process.terminate()
        assert await daemon.code() == 0, daemon.err
    finally:
        await daemon.stop()
