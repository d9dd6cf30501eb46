"""What is given wrongly is refused where it is given, and the error names it, the value and the rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adsum.clients import (
    ConsistentHash,
    LowestLatency,
    Outliers,
    Registry,
    RoundRobin,
    ZonePreferring,
    bootstrap,
    connect,
    http,
)
from adsum.clients.choosing.filters import Filters
from adsum.events.errors import InvalidValue
from adsum.events.numbers import check_number, check_wait
from tests.choosing import Crowd

NO_NUMBERS: list[Any] = ["5", None, True, math.nan, b"5", [5]]


@pytest.fixture
async def registry() -> Registry:
    """One whose broker is not there: everything is refused before anything is sent."""
    registry = connect("nats://127.0.0.1:1")
    async with registry:
        yield registry


def numbers_of(registry: Registry) -> Iterator[tuple[str, Callable[[Any], object]]]:
    """Every number that a caller may give, by its name."""
    for name in ("timeout", "grace", "connect_timeout", "attempts", "idle", "limit", "panic", "wait"):
        yield name, lambda value, name=name: registry.peers("orders", dial=http(), **{name: value})
    for name in ("failures", "first", "longest", "forget", "share", "decay"):
        yield name, lambda value, name=name: Outliers(**{name: value})
    yield "poll_interval", lambda value: registry.directory(poll_interval=value)
    yield "wait", lambda value: registry.directory(wait=value)
    yield "wait", lambda value: registry.register("orders", port=1, wait=value)
    yield "wait", lambda value: bootstrap(None, "orders", address=":1", wait=value)
    yield "timeout", lambda value: registry.leases(timeout=value)
    yield "timeout", lambda value: registry.history(timeout=value)
    yield "points", lambda value: ConsistentHash(points=value)
    yield "bound", lambda value: ConsistentHash(bound=value)
    yield "decay", lambda value: LowestLatency(value)
    yield "factor", lambda value: ZonePreferring("eu-1", factor=value)
    yield "panic", lambda value: Crowd("a").select(panic=value)


async def test_what_is_no_number_is_refused(registry: Registry) -> None:
    for name, give in numbers_of(registry):
        for value in NO_NUMBERS:
            with pytest.raises(InvalidValue) as caught:
                give(value)
            assert (caught.value.field, caught.value.rule[:4]) == (name, "must"), (name, value)


async def test_what_calls_are_given_is_checked_too(registry: Registry) -> None:
    for value in [*NO_NUMBERS, 0, -1]:
        with pytest.raises(InvalidValue, match=r"^ttl"):
            await registry.leases().register("orders", "10.0.0.7:1", value)
    for value in (None, 5, ("10.0.0.7", 1)):
        with pytest.raises(InvalidValue, match=r"^endpoint"):
            await registry.leases().register("orders", value)  # type: ignore[arg-type]
    instance = Crowd().put("a")
    for value in [*NO_NUMBERS, math.inf]:
        with pytest.raises(InvalidValue, match=r"^ago"):
            await registry.report(instance, ago=value)
    async with registry.peers("orders", dial=http(), wait=0) as peers:
        for value in [*NO_NUMBERS[2:], "5", 0, -1]:
            with pytest.raises(InvalidValue, match=r"^timeout"):
                await peers.call(lambda peer: peer.connection.get("/"), timeout=value)


@pytest.mark.parametrize(
    ("field", "give"),
    [
        ("points", lambda: ConsistentHash(points=math.inf)),
        ("points", lambda: ConsistentHash(points=2.5)),
        ("key", lambda: Crowd("a").select(ConsistentHash()).pick(42)),
        ("key", lambda: Crowd("a").select(ZonePreferring("x", ConsistentHash)).pick(3.5)),
        ("decay", lambda: LowestLatency(0)),
        ("inner", lambda: ZonePreferring("eu-1", RoundRobin())),
        ("inner", lambda: ZonePreferring("eu-1", lambda: 5)),
        ("zone", lambda: ZonePreferring(5)),
        ("version", lambda: Filters(version=1.4)),
        ("version", lambda: Filters(version="<" + "9" * 5000)),
        ("metadata", lambda: Filters(metadata="tier")),
    ],
)
def test_what_has_another_type_is_refused(field: str, give: Callable[[], object]) -> None:
    with pytest.raises(InvalidValue) as caught:
        give()
    assert caught.value.field == field


def test_any_text_is_a_key() -> None:
    """Also one that is no Unicode, as a file name may be."""
    selection = Crowd("a", "b").select(ConsistentHash())
    assert all(selection.pick(key) is selection.pick(key) for key in ("", b"", "\ud800", "\0"))


def test_numbers_that_keep_to_the_rule_are_given_back() -> None:
    assert check_number("x", 10**400, "must be above 0", lambda number: number > 0) == 10**400
    assert [check_wait("x", seconds) for seconds in (-1, 0, 0.5, math.inf)] == [-1, 0, 0.5, math.inf]
