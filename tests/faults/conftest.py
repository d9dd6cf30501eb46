"""What the tests of faults share: a catalog of either dialect."""

from __future__ import annotations

import pytest

from tests.databases import empty_postgres, postgres, postgres_server

__all__ = ["empty_postgres", "postgres", "postgres_server"]


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options of adsumd for a new catalog of either dialect."""
    return () if request.param == "sqlite" else ("--catalog", request.getfixturevalue("postgres"))
