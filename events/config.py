"""The configuration file, shared by the daemon, the command and the bootstrap.

[database]
dsn = "postgresql://adsum@db/adsum"       # the catalog; sqlite:///path or postgresql://…

[discovery]
dsn = "sqlite:////var/lib/adsum/catalog.db"   # instead of [database] dsn, where both are given
heartbeat_interval = "5s"
poll_interval = "60s"                     # how long a cache goes without a mark before it reads anew
ttl = "15s"

[nats]
url = "nats://127.0.0.1:4222"             # and user, password, token, credentials, nkey, tls_ca, …

[roles.querier]                           # what who joins as a querier says of itself; see `roles`
capabilities = ["QueryExecution"]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .broker import BrokerSettings
from .description import DEFAULT_HEARTBEAT, DEFAULT_TTL, check_lease
from .durations import parse_duration
from .errors import InvalidValue
from .names import check_known
from .roles import Role, check_roles

__all__ = ["DEFAULT_POLL_INTERVAL", "Config", "check_config", "load_config"]

DEFAULT_POLL_INTERVAL = 60.0
_KEYS: dict[str, tuple[str, ...]] = {
    "database": ("dsn",),
    "discovery": ("dsn", "heartbeat_interval", "poll_interval", "probes", "ttl"),
    "nats": BrokerSettings.__struct_fields__,
    "roles": (),
}
_DURATIONS = ("heartbeat_interval", "poll_interval", "ttl")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says, with the defaults for what it does not. Durations in seconds; `dsn` None: the default."""

    dsn: str | None = None
    heartbeat_interval: float = DEFAULT_HEARTBEAT
    poll_interval: float = DEFAULT_POLL_INTERVAL
    probes: bool = True
    ttl: float = DEFAULT_TTL
    nats: BrokerSettings | None = None
    roles: dict[str, Role] = {}


def load_config(path: str | Path) -> Config:
    """Read and check a configuration file. Raises InvalidValue, naming the key, the value and the rule."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue("configuration file", str(path), f"cannot be read: {error}") from None
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidValue("configuration file", str(path), f"is not TOML: {error}") from None
    return check_config(tables)


def check_config(tables: Mapping[str, object]) -> Config:
    """The Config that these tables mean. Pure."""
    roles = check_roles(tables["roles"]) if "roles" in tables else {}
    sections = {name: _section(name, table) for name, table in tables.items() if name != "roles"}
    discovery = sections.get("discovery", {})
    given = {key: parse_duration(_scalar(key, discovery[key]), key) for key in _DURATIONS if key in discovery}
    named = (sections.get(name, {}) for name in ("discovery", "database"))
    dsns = [_text("dsn", section["dsn"]) for section in named if "dsn" in section]
    config = Config(
        dsn=dsns[0] if dsns else None,
        probes=_switch("probes", discovery.get("probes", True)),
        nats=_nats(sections["nats"]) if "nats" in sections else None,
        roles=roles,
        **given,
    )
    check_lease(config.heartbeat_interval, config.ttl)
    return config


def _section(name: str, table: object) -> Mapping[str, object]:
    check_known("section", name, _KEYS)
    if not isinstance(table, dict):
        raise InvalidValue("section", name, f"must be a table, written [{name}]")
    for key in table:
        check_known(f"key in [{name}]", key, _KEYS[name])
    return table


def _nats(table: Mapping[str, object]) -> BrokerSettings:
    return BrokerSettings(**{key: _text(key, value) for key, value in table.items()})


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(key, value, "must be text")
    return value


def _switch(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(key, value, "must be true or false")
    return value


def _scalar(key: str, value: object) -> str | float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidValue(key, value, 'must be a duration such as "30s"')
    return value
