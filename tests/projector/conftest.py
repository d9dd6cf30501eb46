"""The databases' fixtures for the projector's tests."""

from tests.databases import empty_postgres, postgres, postgres_server

__all__ = ["empty_postgres", "postgres", "postgres_server"]
