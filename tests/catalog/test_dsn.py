"""Which database a DSN means, and what is wrong with one that means none."""

from __future__ import annotations

import pytest

from adsum.events.errors import InvalidValue
from adsum.projector.databases import open_catalog, without_password
from adsum.projector.postgres import PostgresCatalog
from adsum.projector.sqlite import SQLiteCatalog


@pytest.mark.parametrize(
    ("dsn", "kind"),
    [
        ("sqlite:///catalog.db", SQLiteCatalog),
        ("sqlite:////var/lib/adsum/catalog.db", SQLiteCatalog),
        ("postgresql://db/adsum", PostgresCatalog),
        ("postgres://adsum@db:5433/adsum?sslmode=require", PostgresCatalog),
        ("postgresql:///adsum?host=/run/postgresql", PostgresCatalog),
        ("postgresql://adsum@[::1]:5432/adsum", PostgresCatalog),
    ],
)
def test_a_dsn_names_its_database_and_is_told_as_it_is(dsn: str, kind: type) -> None:
    catalog = open_catalog(dsn)
    assert isinstance(catalog, kind)
    assert catalog.name == dsn
    assert catalog.shared == (kind is PostgresCatalog)


@pytest.mark.parametrize(
    ("dsn", "suggestion"),
    [
        ("mysql://root@db/adsum", "sqlite:///catalog.db"),
        ("catalog.db", "sqlite:///catalog.db"),
        ("/var/lib/catalog.db", "sqlite:////var/lib/catalog.db"),
        ("", "sqlite:///catalog.db"),
        ("sqlite://catalog.db", "sqlite:///catalog.db"),
        ("sqlite:///", "sqlite:///catalog.db"),
        ("sqlite:///:memory:", "sqlite:///catalog.db"),
        ("sqlite:///catalog.db?mode=ro", "sqlite:///catalog.db"),
        ("sqlite3:///catalog.db", "sqlite:///catalog.db"),
        ("postgresql+asyncpg://adsum@db/adsum", "postgresql://adsum@db/adsum"),
        ("postgresql://adsum@db:port/adsum", "postgresql://user:password@host:5432/database"),
    ],
)
def test_any_other_is_refused_with_one_that_would_do(dsn: str, suggestion: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        open_catalog(dsn)
    assert refused.value.field == "dsn"
    assert refused.value.value == dsn
    assert refused.value.suggestion == suggestion
    assert not isinstance(open_catalog(suggestion), type(None))


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://adsum:secret@db/adsum", "postgresql://adsum:***@db/adsum"),
        ("postgresql://adsum:s@cr/t:e@db/adsum", "postgresql://adsum:***@db/adsum"),
        ("postgresql://:secret@db/adsum", "postgresql://:***@db/adsum"),
        (
            "postgresql://db/adsum?user=adsum&password=secret&ssl=on",
            "postgresql://db/adsum?user=adsum&password=***&ssl=on",
        ),
        ("postgresql://db:5432/adsum", "postgresql://db:5432/adsum"),
    ],
)
def test_a_password_is_never_told(dsn: str, shown: str) -> None:
    assert without_password(dsn) == shown


@pytest.mark.parametrize(
    "dsn", ["postgresql+asyncpg://u:secret@db/x", "mysql://u:secret@db/x", "postgresql://u:sec/ret@db/x"]
)
def test_not_in_an_error_either(dsn: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        open_catalog(dsn)
    assert "sec" not in str(refused.value)


@pytest.mark.parametrize(
    "dsn",
    [
        "sqlite://adsum:secret@db",
        "sqlite:///adsum:secret@db/",
        "sqlite://file?password=secret",
        "mysql://adsum:secret@db/adsum",
        "postgresqlx://adsum:secret@db/adsum",
        "sqlitex://adsum:secret@db",
        "sqlite:/adsum:secret@db",
        "host=db password=secret user=adsum",
    ],
)
def test_no_password_is_told_of_what_is_no_dsn(dsn: str) -> None:
    """Neither of what was said, nor in what is suggested instead."""
    with pytest.raises(InvalidValue) as raised:
        open_catalog(dsn)
    assert "secret" not in str(raised.value)
