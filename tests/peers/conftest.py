"""What the tests of peers share: a catalog of either dialect."""

from __future__ import annotations

from tests.databases import empty_postgres, new_database, postgres, postgres_server
from tests.faults.conftest import catalog, dsn

__all__ = ["catalog", "dsn", "empty_postgres", "new_database", "postgres", "postgres_server"]
