"""What the tests of faults share: a catalog of either dialect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.databases import empty_postgres, new_database, postgres, postgres_server

__all__ = ["empty_postgres", "new_database", "postgres", "postgres_server"]


@pytest.fixture(params=["sqlite", "postgresql"])
def dsn(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The DSN of a new catalog of either dialect."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    server: str = request.getfixturevalue("postgres")
    return server


@pytest.fixture
def catalog(dsn: str) -> tuple[str, ...]:
    """Options of adsumd for a new catalog of either dialect."""
    return "--catalog", dsn
