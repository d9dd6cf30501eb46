"""The roles of a configuration file: what they mean, and what is wrong with one that means nothing."""

from __future__ import annotations

from typing import Any

import pytest

from adsum.events.config import Config, check_config
from adsum.events.description import split_address
from adsum.events.errors import InvalidValue
from adsum.events.roles import Role, role_of


def refused(roles: Any) -> InvalidValue:
    """Why these roles are refused."""
    with pytest.raises(InvalidValue) as caught:
        check_config({"roles": roles})
    return caught.value


def test_what_a_role_says_of_itself() -> None:
    """All of it, and the defaults for what it does not say; capabilities once each, in order."""
    roles = check_config(
        {
            "roles": {
                "writer": {
                    "capabilities": ["TraceIngestion", "Storage", "Storage"],
                    "metadata": {"rack": "b"},
                    "protocol": "grpc",
                    "version": "2",
                    "weight": 2,
                    "zone": "eu",
                },
                "router": {},
            }
        }
    ).roles
    assert roles == {
        "writer": Role(
            capabilities=("Storage", "TraceIngestion"),
            metadata={"rack": "b"},
            protocol="grpc",
            version="2",
            weight=2.0,
            zone="eu",
        ),
        "router": Role(),
    }
    assert Config().roles == {}


@pytest.mark.parametrize(
    ("roles", "field", "value", "would_do"),
    [
        ([], "section", "roles", None),
        ({"Writer": {}}, "role", "Writer", "writer"),
        ({"writer": ["Storage"]}, "role", "writer", None),
        ({"writer": {"capability": []}}, "key in [roles.writer]", "capability", "capabilities"),
        ({"writer": {"heartbeat": "5s"}}, "key in [roles.writer]", "heartbeat", None),
        ({"writer": {"capabilities": "Storage"}}, "[roles.writer] capabilities", "Storage", None),
        ({"writer": {"capabilities": [7]}}, "[roles.writer] capability", 7, "7"),
        ({"writer": {"capabilities": ["a b"]}}, "[roles.writer] capability", "a b", "a-b"),
        ({"writer": {"metadata": "rack"}}, "[roles.writer] metadata", "rack", None),
        ({"writer": {"metadata": {"rack": 7}}}, "[roles.writer] metadata 'rack'", 7, None),
        ({"writer": {"metadata": {"health.main": "x"}}}, "[roles.writer] metadata 'health.main'", "x", "/health"),
        ({"writer": {"protocol": "HTTP"}}, "[roles.writer] protocol", "HTTP", None),
        ({"writer": {"version": 2}}, "[roles.writer] version", 2, None),
        ({"writer": {"weight": -1}}, "[roles.writer] weight", -1, None),
        ({"writer": {"weight": True}}, "[roles.writer] weight", True, None),
        ({"writer": {"zone": None}}, "[roles.writer] zone", None, None),
    ],
)
def test_what_is_wrong_is_told_with_the_role_the_value_and_the_rule(
    roles: Any, field: str, value: object, would_do: str | None
) -> None:
    error = refused(roles)
    assert (error.field, error.value, error.suggestion) == (field, value, would_do)
    assert error.rule


def test_a_role_that_is_not_listed_is_refused_where_some_are() -> None:
    """It names those that are near and all there are; where none are listed, any will do and says nothing."""
    roles = {"querier": Role(capabilities=("QueryExecution",)), "writer": Role()}
    assert role_of(roles, "querier").capabilities == ("QueryExecution",)
    with pytest.raises(InvalidValue) as caught:
        role_of(roles, "querer")
    assert caught.value.suggestion == "querier"
    assert "is not in [roles] of the configuration (there: querier, writer)" in str(caught.value)
    assert role_of({}, "anything") == Role()
    with pytest.raises(InvalidValue, match="must be 1 to 63"):
        role_of({}, "No Name")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.7:50051", ("10.0.0.7", 50051)),
        ("[::1]:80", ("::1", 80)),
        ("db.example:0", ("db.example", 0)),
        (":80", ("", 80)),
    ],
)
def test_an_address(text: str, found: tuple[str, int]) -> None:
    assert split_address("address", text) == found


@pytest.mark.parametrize(
    "text", ["", "80", "host", "host:", "host:http", "::1:80", "[::1]", "host:-1", "h:\uff11", None, 80]
)
def test_what_is_no_address(text: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        split_address("address", text)
    assert caught.value.suggestion == "10.0.0.7:8080"
