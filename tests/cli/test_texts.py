"""What instances, changes and leases look like: pure functions, table by table."""

from __future__ import annotations

import pytest

from adsum.clients.cli.child import ending_of
from adsum.clients.cli.comparing import differences
from adsum.clients.cli.near import near
from adsum.clients.cli.options import Where
from adsum.clients.cli.output import clean, iso
from adsum.clients.cli.register import lease
from adsum.clients.cli.shown import condition
from adsum.events.broker import BrokerSettings
from adsum.events.config import Config
from adsum.events.description import Endpoint
from adsum.events.signals import Instance


def instance(**fields: object) -> Instance:
    """An instance that may be called, but for `fields`."""
    given: dict[str, object] = {
        "epoch": "e", "revision": 1, "namespace": "default", "service": "orders", "id": "a", "term": "t",
        "endpoints": (Endpoint(host="10.0.0.1", port=80),), "heartbeat": 5.0, "ttl": 15.0,
    }  # fmt: skip
    return Instance(**(given | fields))  # type: ignore[arg-type]  # a table of fields


@pytest.mark.parametrize(
    ("fields", "text", "style"),
    [
        ({}, "up", "green"),
        ({"health": "warning"}, "up,warning", "yellow"),
        ({"mode": "draining"}, "draining", "yellow"),
        ({"mode": "maintenance", "health": "warning"}, "warning,maintenance", "yellow"),
        ({"health": "critical"}, "critical", "red"),
        ({"liveness": "stale", "mode": "draining"}, "stale,draining", "red"),
    ],
)
def test_the_condition_says_what_keeps_it_from_being_called(fields: dict[str, object], text: str, style: str) -> None:
    assert condition(instance(**fields)) == (text, style)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ({"liveness": "stale"}, ["up -> stale"]),
        ({"term": "u"}, ["a new life"]),
        ({"mode": "draining", "reason": "update"}, ["up -> draining", "update"]),
        ({"endpoints": (Endpoint(host="::1", port=81),)}, ["10.0.0.1:80 -> [::1]:81"]),
        ({"version": "2", "weight": 2.0}, ["version none -> 2", "weight 1 -> 2"]),
        ({"capabilities": ("a", "b")}, ["capabilities none -> a,b"]),
        ({"metadata": {"k": "v"}}, ["metadata none -> k=v"]),
        ({"heartbeat": 2.0, "ttl": 6.5}, ["heartbeat 5s -> 2s", "ttl 15s -> 6.5s"]),
        ({"revision": 2}, []),
    ],
)
def test_differences_name_what_is_not_the_same(after: dict[str, object], told: list[str]) -> None:
    assert list(differences(instance(), instance(**after))) == told


@pytest.mark.parametrize(
    ("heartbeat", "ttl", "config", "expected"),
    [
        (None, None, Config(), (5.0, 15.0)),
        (None, 3.0, Config(), (1.0, 3.0)),
        (None, 60.0, Config(), (5.0, 60.0)),
        (10.0, None, Config(), (10.0, 30.0)),
        (2.0, None, Config(), (2.0, 15.0)),
        (1.0, 1.5, Config(), (1.0, 1.5)),  # refused later: what was said is not bent
        (None, None, Config(heartbeat_interval=1.0, ttl=4.0), (1.0, 4.0)),
        (None, 0.01, Config(), (0.1, 0.01)),
    ],
)
def test_a_lease_follows_from_what_was_given(
    heartbeat: float | None, ttl: float | None, config: Config, expected: tuple[float, float]
) -> None:
    where = Where(BrokerSettings(), "default", 5, config)
    assert lease(where, heartbeat, ttl) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("returncode", "told"),
    [(None, ""), (0, "exit 0"), (137, "exit 137"), (-9, "signal 9 (SIGKILL)"), (-99, "signal 99")],
)
def test_how_a_program_ended(returncode: int | None, told: str) -> None:
    assert ending_of(returncode) == told


def test_near_names() -> None:
    assert near("ordrs", ["orders", "billing", "order"]) == "; did you mean orders or order?"
    assert near("x", ["orders"]) == ""


def test_text_from_others_cannot_steer_a_terminal() -> None:
    assert clean("a\x1b[2J\nb\u202e ü") == "a\\x1b[2J\\nb\\u202e ü"


def test_times_are_utc_to_the_millisecond() -> None:
    assert iso(0.25) == "1970-01-01T00:00:00.250Z"
    assert iso(1764000000) == "2025-11-24T16:00:00.000Z"
