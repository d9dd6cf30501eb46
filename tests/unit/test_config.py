from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adsum.events.broker import BrokerSettings
from adsum.events.config import Config, check_config, load_config
from adsum.events.errors import InvalidValue


def refused(tables: dict[str, Any]) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        check_config(tables)
    return caught.value


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "adsum.toml"
    file.write_text("")
    assert load_config(file) == Config()
    assert Config() == Config(dsn=None, heartbeat_interval=5.0, poll_interval=60.0, ttl=15.0, nats=None)


def test_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "adsum.toml"
    file.write_text(
        """
        [database]
        dsn = "postgresql://adsum@db/adsum"
        [discovery]
        heartbeat_interval = "2s"
        poll_interval = 90
        probes = false
        ttl = "1m30s"
        [nats]
        url = "nats://a:4222,nats://b:4222"
        user = "adsum"
        password = "secret"
        """
    )
    assert load_config(file) == Config(
        dsn="postgresql://adsum@db/adsum",
        heartbeat_interval=2.0,
        poll_interval=90.0,
        probes=False,
        ttl=90.0,
        nats=BrokerSettings(url="nats://a:4222,nats://b:4222", user="adsum", password="secret"),
    )


def test_the_dsn_of_discovery_goes_before() -> None:
    both = {"database": {"dsn": "postgresql://a"}, "discovery": {"dsn": "sqlite:///b"}}
    assert check_config(both).dsn == "sqlite:///b"
    assert check_config({"discovery": {"dsn": "sqlite:///b"}}).dsn == "sqlite:///b"
    assert check_config({"database": {}, "discovery": {}}).dsn is None


@pytest.mark.parametrize(
    ("tables", "field", "value", "would_do"),
    [
        ({"databse": {}}, "section", "databse", "database"),
        ({"discover": {}}, "section", "discover", "discovery"),
        ({"NATS": {}}, "section", "NATS", None),
        ({"frobnicate": {}}, "section", "frobnicate", None),
        ({"ttl": "15s"}, "section", "ttl", None),
        ({"discovery": {"heartbeat": "5s"}}, "key in [discovery]", "heartbeat", "heartbeat_interval"),
        ({"discovery": {"pollinterval": "5s"}}, "key in [discovery]", "pollinterval", "poll_interval"),
        ({"discovery": {"TTL": "5s"}}, "key in [discovery]", "TTL", None),
        ({"database": {"dns": "x"}}, "key in [database]", "dns", "dsn"),
        ({"nats": {"pasword": "x"}}, "key in [nats]", "pasword", "password"),
        ({"nats": {"frobnicate": "x"}}, "key in [nats]", "frobnicate", None),
    ],
)
def test_what_is_not_known_is_told_with_the_closest_known(
    tables: dict[str, Any], field: str, value: str, would_do: str | None
) -> None:
    error = refused(tables)
    assert (error.field, error.value, error.suggestion) == (field, value, would_do)
    assert "is not known" in error.rule


@pytest.mark.parametrize(
    ("tables", "field"),
    [
        ({"database": "postgresql://a"}, "section"),
        ({"nats": ["a"]}, "section"),
        ({"database": {"dsn": 7}}, "dsn"),
        ({"database": {"dsn": ""}}, "dsn"),
        ({"database": {"dsn": 7}, "discovery": {"dsn": "sqlite:///b"}}, "dsn"),
        ({"discovery": {"ttl": "5 parsecs"}}, "ttl"),
        ({"discovery": {"ttl": True}}, "ttl"),
        ({"discovery": {"ttl": ["15s"]}}, "ttl"),
        ({"discovery": {"ttl": 10**400}}, "ttl"),
        ({"discovery": {"ttl": float("nan")}}, "ttl"),
        ({"discovery": {"ttl": "9s"}}, "ttl"),
        ({"discovery": {"ttl": "1h"}}, "ttl"),
        ({"discovery": {"heartbeat_interval": "10s"}}, "ttl"),
        ({"discovery": {"heartbeat_interval": "1ms"}}, "heartbeat"),
        ({"discovery": {"poll_interval": 0}}, "poll_interval"),
        ({"discovery": {"poll_interval": "-5s"}}, "poll_interval"),
        ({"discovery": {"probes": "no"}}, "probes"),
        ({"nats": {"url": 4222}}, "url"),
        ({"nats": {"user": None}}, "user"),
    ],
)
def test_what_is_wrong_is_told_by_its_key(tables: dict[str, Any], field: str) -> None:
    assert refused(tables).field == field


@pytest.mark.parametrize(("text", "rule"), [(b"[nats", "is not TOML"), (b"\xff", "cannot be read")])
def test_a_file_that_is_no_configuration(tmp_path: Path, text: bytes, rule: str) -> None:
    file = tmp_path / "adsum.toml"
    file.write_bytes(text)
    with pytest.raises(InvalidValue, match=rule):
        load_config(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere.toml", tmp_path):
        with pytest.raises(InvalidValue, match="cannot be read") as caught:
            load_config(path)
        assert caught.value.value == str(path)
