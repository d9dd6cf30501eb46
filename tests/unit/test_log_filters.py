"""Which messages `adsum log` shows: pure, table by table."""

from __future__ import annotations

import pytest

from adsum.clients.cli.log import Wanted, check_type
from adsum.events.errors import InvalidValue
from adsum.events.questions import Moment
from tests.catalog.story import BEGAN, Story, key

WHO = key(1)


def at(sequence: float) -> Moment:
    """The time that the story gives to a message."""
    return Moment(time=BEGAN + sequence / 1000)


def revision(number: int) -> Moment:
    return Moment(revision=number)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"types": frozenset({"registered"})}, [1]),
        ({"types": frozenset({"lapsed", "expired"})}, [2, 4]),
        ({"types": frozenset({"unreadable"})}, [5]),
        ({"since": revision(2)}, [3, 4, 5]),
        ({"until": revision(2)}, [1, 2]),
        ({"since": revision(2), "until": revision(4)}, [3, 4]),
        ({"since": revision(0)}, [1, 2, 3, 4, 5]),
        ({"since": at(2.5)}, [3, 4, 5]),
        ({"since": at(2)}, [3, 4, 5]),
        ({"until": at(2)}, [1, 2]),
        ({"since": at(1), "until": revision(4), "types": frozenset({"expired", "registered"})}, [4]),
    ],
)
def test_what_fits(options: dict[str, object], shown: list[int]) -> None:
    """A `since` is the last moment that is left out, an `until` the last one that is not: they part the log in two."""
    story = Story()
    messages = [story.register(WHO), story.lapse(WHO), story.resume(WHO), story.expire(WHO), story.raw(WHO, b"junk")]
    wanted = Wanted("default", **options)  # type: ignore[arg-type]  # a table of options
    assert [message.sequence for message in messages if wanted.fits(message)] == shown


@pytest.mark.parametrize(
    ("names", "subject", "told"),
    [
        ({}, "adsum.v1.default.event.*.*", "any service in namespace default"),
        ({"service": "orders"}, "adsum.v1.default.event.orders.*", "orders in namespace default"),
        ({"instance": "a"}, "adsum.v1.default.event.*.a", "a in namespace default"),
        ({"service": "orders", "instance": "a"}, "adsum.v1.default.event.orders.a", "orders/a in namespace default"),
        ({"until": Moment(revision=1)}, "adsum.v1.default.event.*.*",
         "any service in namespace default that fits the other options"),
    ],
)  # fmt: skip
def test_the_names_are_the_brokers_to_filter(names: dict[str, object], subject: str, told: str) -> None:
    wanted = Wanted("default", **names)  # type: ignore[arg-type]  # a table of options
    assert (wanted.subject, str(wanted)) == (subject, told)


def test_a_type_that_is_none_is_told_with_the_nearest() -> None:
    assert check_type("unreadable") == "unreadable"
    with pytest.raises(InvalidValue, match=r"type 'expire': is none of registered, .*; did you mean expired\?"):
        check_type("expire")
