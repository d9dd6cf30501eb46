from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.events.description import (
    DEFAULT_HEARTBEAT,
    DEFAULT_TTL,
    MAX_CAPABILITIES,
    MAX_ENDPOINTS,
    MAX_METADATA,
    MAX_TTL,
    Description,
    Endpoint,
    check_host,
    describe,
    health_path,
)
from adsum.events.errors import InvalidValue
from adsum.events.streams import BEATS_MAX_AGE

HERE = Endpoint(host="10.0.0.7", port=8080)


def described(**said: Any) -> Description:
    return describe([HERE], **said)


def refused(make: Callable[[], object]) -> InvalidValue:
    with pytest.raises(InvalidValue) as caught:
        make()
    return caught.value


# ---- hosts


@pytest.mark.parametrize(
    ("host", "kept"),
    [
        ("localhost", "localhost"),
        ("db-1.example.org", "db-1.example.org"),
        ("db.example.org.", "db.example.org."),
        ("DB.Example.ORG", "db.example.org"),
        ("web_1", "web_1"),
        ("1a", "1a"),
        ("stack.7", "stack.7"),
        ("a" * 63, "a" * 63),
        (" 10.0.0.1 ", "10.0.0.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("0000:0000:0000:0000:0000:0000:0000:0001", "::1"),
        ("2001:DB8::A", "2001:db8::a"),
        ("2001:db8:0:0:0:0:0:a", "2001:db8::a"),
        ("[2001:DB8::0.0.0.10]", "2001:db8::a"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("::FFFF:102:304", "1.2.3.4"),
        ("fe80::1", "fe80::1"),
    ],
)
def test_hosts(host: str, kept: str) -> None:
    assert check_host(host) == kept


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "[0.0.0.0]",
        "::",
        "[::]",
        "::0",
        "0::0",
        "0:0:0:0:0:0:0:0",
        "0000::",
        "::0.0.0.0",
        "::ffff:0.0.0.0",
        "::ffff:0:0",
        " :: ",
        "::%eth0",
    ],
)
def test_a_wildcard_is_refused_in_every_spelling(host: str) -> None:
    assert "wildcard" in refused(lambda: check_host(host)).rule


@pytest.mark.parametrize("host", ["0", "0x0", "0X0", "0.0", "00.0.0.0", "0x0.0.0.0", "*", "127.1", "2130706433"])
def test_numbers_that_only_some_resolvers_take_for_addresses_are_refused(host: str) -> None:
    assert "host name" in refused(lambda: check_host(host)).rule


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        ".",
        "a..b",
        "-a",
        "a-",
        "a b",
        "http://a",
        "a:80",
        "10.0.0.1:80",
        "[::1]:80",
        "1.2.3.4.5",
        "256.0.0.1",
        "010.0.0.1",
        ":::",
        "1::2::3",
        "a" * 64,
        ".".join(["a" * 60] * 5),
        "a\x00b",
        "zürich",
        "a\n.b",
        "/etc",
    ],
)
def test_what_is_no_host(host: str) -> None:
    assert refused(lambda: check_host(host)).field == "host"


@pytest.mark.parametrize("host", ["224.0.0.1", "ff02::1", "::ffff:224.0.0.1"])
def test_multicast_is_refused(host: str) -> None:
    assert "multicast" in refused(lambda: check_host(host)).rule


@pytest.mark.parametrize("host", ["fe80::1%eth0", "[fe80::1%25eth0]", "fe80::1%1"])
def test_a_zone_means_nothing_elsewhere(host: str) -> None:
    error = refused(lambda: check_host(host))
    assert "zone" in error.rule
    assert error.suggestion == "fe80::1"


@given(st.ip_addresses())
def test_an_address_kept_is_kept_as_it_is(address: object) -> None:
    try:
        kept = check_host(str(address))
    except InvalidValue:
        return
    assert check_host(kept) == kept
    assert check_host(f"[{kept}]") == kept


def test_an_address_has_the_brackets_it_needs() -> None:
    assert Endpoint(host="::1", port=80).address == "[::1]:80"
    assert Endpoint(host="10.0.0.1", port=80).address == "10.0.0.1:80"


# ---- endpoints


@pytest.mark.parametrize("port", [1, 80, 65535])
def test_ports(port: int) -> None:
    assert describe([Endpoint(host="a", port=port)]).endpoints[0].port == port


@pytest.mark.parametrize("port", [0, -1, 65536, 10**30, True, 80.0, "80", None, math.nan])
def test_what_is_no_port(port: Any) -> None:
    error = refused(lambda: describe([Endpoint(host="a", port=port)]))
    assert error.field == "port"
    assert "1 to 65535" in str(error)
    assert repr(port) in str(error)


@pytest.mark.parametrize("protocol", ["", "HTTP", "1http", "h ttp", "a" * 33, "http\0", "http\n", None, 7])
def test_what_is_no_protocol(protocol: Any) -> None:
    assert refused(lambda: describe([Endpoint(host="a", port=1, protocol=protocol)])).field == "protocol"


@pytest.mark.parametrize("protocol", ["h", "http", "grpc+tls", "redis-6.2", "a" * 32])
def test_protocols(protocol: str) -> None:
    assert describe([Endpoint(host="a", port=1, protocol=protocol)]).endpoints[0].protocol == protocol


def test_an_instance_has_at_least_one_endpoint_and_not_too_many() -> None:
    many = [Endpoint(name=f"e{number}", host="a", port=1) for number in range(MAX_ENDPOINTS + 1)]
    assert len(describe(many[:-1]).endpoints) == MAX_ENDPOINTS
    assert refused(lambda: describe(many)).value == MAX_ENDPOINTS + 1
    assert refused(lambda: describe([])).value == 0


def test_each_endpoint_has_a_name_of_its_own() -> None:
    error = refused(lambda: describe([HERE, Endpoint(host="b", port=2)]))
    assert (error.field, error.value) == ("endpoint name", "main")
    assert refused(lambda: describe([Endpoint(name="Main", host="b", port=2)])).suggestion == "main"


# ---- capabilities, metadata, texts


def test_capabilities_are_a_set_in_order() -> None:
    assert described(capabilities=["b", "a", "B", "a"]).capabilities == ("B", "a", "b")
    assert refused(lambda: described(capabilities="payments")).field == "capabilities"
    assert refused(lambda: described(capabilities=["a b"])).suggestion == "a-b"
    many = [f"c{number}" for number in range(MAX_CAPABILITIES + 1)]
    assert len(described(capabilities=many[:-1]).capabilities) == MAX_CAPABILITIES
    assert refused(lambda: described(capabilities=many)).value == MAX_CAPABILITIES + 1


def test_metadata_up_to_its_documented_size() -> None:
    frame = len('{"k":""}')
    fits = {"k": "x" * (MAX_METADATA - frame)}
    assert described(metadata=fits).metadata == fits
    assert "4096 bytes" in str(refused(lambda: described(metadata={"k": "x" * (MAX_METADATA - frame + 1)})))
    assert "4096 bytes" in str(refused(lambda: described(metadata={"k": "ü" * 2045})))
    assert "4096 bytes" in str(refused(lambda: described(metadata={f"k{number}": "x" for number in range(500)})))


def test_a_health_path_is_declared_for_an_endpoint_by_its_name() -> None:
    said = described(metadata={"health.main": "/healthz?full=1", "health.other": "no endpoint of mine"}).metadata
    assert health_path(said, "main") == "/healthz?full=1"
    assert health_path(said, "other") == health_path(said, "admin") == ""


@pytest.mark.parametrize("path", ["healthz", "", "http://a/healthz", "/a b", "/a\r\nX: y", "/ü"])
def test_a_health_path_is_one_of_a_request(path: str) -> None:
    assert health_path({"health.main": path}, "main") == ""
    if path.isprintable():
        error = refused(lambda: described(metadata={"health.main": path}))
        assert (error.field, error.suggestion) == ("metadata 'health.main'", "/health")


@pytest.mark.parametrize(
    "metadata",
    [{"": "x"}, {"k\0": "x"}, {"k": "x\0"}, {"k": 7}, {7: "x"}, {"k": None}, {"k" * 129: "x"}, {"k": "\ud800"}],
)
def test_metadata_is_short_text_without_nul(metadata: Any) -> None:
    assert refused(lambda: described(metadata=metadata)).field.startswith("metadata")


@pytest.mark.parametrize("field", ["version", "zone"])
def test_texts_without_nul_and_not_too_long(field: str) -> None:
    assert getattr(described(**{field: "x" * 128}), field) == "x" * 128
    for wrong in ("a\0", "x" * 129, None, 7):
        assert refused(lambda wrong=wrong: described(**{field: wrong})).field == field  # type: ignore[misc]


# ---- weight, heartbeat, TTL


@pytest.mark.parametrize("weight", [0, 0.0, 1, 2.5, 1e300])
def test_weights(weight: float) -> None:
    assert described(weight=weight).weight == weight


@pytest.mark.parametrize("weight", [-1, -0.001, math.nan, math.inf, -math.inf, 10**400, True, "1", None])
def test_what_is_no_weight(weight: Any) -> None:
    assert refused(lambda: described(weight=weight)).field == "weight"


@pytest.mark.parametrize(("heartbeat", "ttl"), [(5, 10), (0.1, 0.2), (5, MAX_TTL), (MAX_TTL / 2, MAX_TTL)])
def test_leases(heartbeat: float, ttl: float) -> None:
    said = described(heartbeat=heartbeat, ttl=ttl)
    assert (said.heartbeat, said.ttl) == (heartbeat, ttl)


@pytest.mark.parametrize(
    ("heartbeat", "ttl", "field"),
    [
        (5, 9.999, "ttl"),
        (5, 5, "ttl"),
        (5, MAX_TTL + 1, "ttl"),
        (0.05, 15, "heartbeat"),
        (0, 15, "heartbeat"),
        (-1, 15, "heartbeat"),
        (5, 0, "ttl"),
        (5, -15, "ttl"),
        (math.nan, 15, "heartbeat"),
        (5, math.nan, "ttl"),
        (5, math.inf, "ttl"),
        (5, 10**400, "ttl"),
        (5, "15s", "ttl"),
        (True, 15, "heartbeat"),
    ],
)
def test_what_is_no_lease(heartbeat: Any, ttl: Any, field: str) -> None:
    assert refused(lambda: described(heartbeat=heartbeat, ttl=ttl)).field == field


def test_a_ttl_below_two_heartbeats_is_told_with_the_rule() -> None:
    error = refused(lambda: described(heartbeat=5, ttl=9))
    assert str(error) == "ttl '9s': must be at least two heartbeats (10s), or one late beat makes it stale"


def test_the_defaults_are_the_documented_ones() -> None:
    assert (DEFAULT_HEARTBEAT, DEFAULT_TTL) == (5.0, 15.0)
    assert described() == Description(endpoints=(HERE,))


def test_the_broker_keeps_a_heartbeat_longer_than_the_longest_life_without_one() -> None:
    assert BEATS_MAX_AGE > 2 * MAX_TTL
