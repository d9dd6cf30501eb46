"""What the tests of peers share: a catalog of either dialect, a registry at an adsumd."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adsum.clients import Registry, connect
from tests.daemons import adsumd
from tests.databases import empty_postgres, new_database, postgres, postgres_server
from tests.faults.conftest import catalog, dsn

__all__ = ["catalog", "dsn", "empty_postgres", "new_database", "postgres", "postgres_server", "registry"]


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    """A process's registry, at an adsumd of its own."""
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as daemon, connect(daemon.url) as registry:
        await registry.broker.ready(10)
        yield registry
