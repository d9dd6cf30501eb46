"""Which database a DSN means."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from adsum.events.errors import InvalidValue

from .catalog import Catalog

try:
    from .postgres import PostgresCatalog
    from .sqlite import SQLiteCatalog
except ModuleNotFoundError as error:
    raise ImportError("adsumd needs aiosqlite and asyncpg: pip install 'adsum[projector]'") from error

__all__ = ["open_catalog", "without_password"]

RULE = "must be sqlite:///file.db, sqlite:////path/to/file.db or postgresql://user:password@host:port/database"
ENCODE = "is no PostgreSQL DSN; special characters in a user's name or password are written as %40 (@), %2F (/), …"


def open_catalog(dsn: str) -> Catalog:
    """The catalog that a DSN names, not connected yet (`await catalog.open()`). Raises InvalidValue."""
    scheme, separator, rest = dsn.partition("://")
    if separator and scheme == "sqlite":
        return SQLiteCatalog(_path(dsn, rest))
    if separator and scheme in ("postgres", "postgresql"):
        return PostgresCatalog(_checked(dsn), without_password(dsn))
    raise InvalidValue("dsn", without_password(dsn), RULE, _nearest(without_password(dsn), scheme))


def without_password(dsn: str) -> str:
    """The DSN as it may be shown: each password in it is `***`."""
    shown = re.sub(r"(:/+[^:/?#@]*):.*@", r"\1:***@", dsn)
    return re.sub(r"(password=)[^&\s]*", r"\1***", shown)


def _path(dsn: str, rest: str) -> Path:
    if not rest.startswith("/"):
        rule = f"needs three slashes before a relative path, four before an absolute one; {RULE}"
        shown = without_password(dsn)
        raise InvalidValue("dsn", shown, rule, f"sqlite:///{shown.partition('://')[2] or 'catalog.db'}")
    file = rest.removeprefix("/")
    if not file or file.endswith("/") or file == ":memory:" or "?" in file or "\0" in file:
        raise InvalidValue("dsn", without_password(dsn), "must name a file, without options", "sqlite:///catalog.db")
    return Path(file)


def _checked(dsn: str) -> str:
    try:
        _ = urlsplit(dsn).port
    except ValueError:
        example = "postgresql://user:password@host:5432/database"
        raise InvalidValue("dsn", without_password(dsn), ENCODE, example) from None
    return dsn


def _nearest(shown: str, scheme: str) -> str:
    """What was perhaps meant, out of the DSN as it may be shown."""
    rest = shown.partition("://")[2]
    if scheme.startswith("postgres"):
        return f"postgresql://{rest}"
    if scheme.startswith("sqlite"):
        return f"sqlite://{rest}"
    bare = "://" not in shown and ":" not in shown and shown
    return f"sqlite:///{shown}" if bare else "sqlite:///catalog.db"
