"""What the tests of the audit share: the command, and a catalog of either dialect."""

from __future__ import annotations

from tests.cli.conftest import adsum
from tests.databases import empty_postgres, new_database, postgres, postgres_server
from tests.faults.test_log_changed import catalogs

__all__ = ["adsum", "catalogs", "empty_postgres", "new_database", "postgres", "postgres_server"]
