from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.events.durations import format_duration, parse_duration
from adsum.events.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("250ms", 0.25),
        ("1m30s", 90.0),
        ("1m 30s", 90.0),
        (" 1 m 30 s ", 90.0),
        ("1.5h", 5400.0),
        ("2H", 7200.0),
        ("1d", 86400.0),
        ("1d2h3m4s5ms", 93784.005),
        ("15", 15.0),
        ("0.5", 0.5),
        (15, 15.0),
        (0.5, 0.5),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "5 parsecs",
        "",
        " ",
        "s",
        "-5s",
        "0",
        "0s",
        "-1",
        "5x",
        "5s6",
        "1 5s",
        "1.s",
        ".5s",
        "1e3s",
        "\u0661s",
        "5s\x00",
        "nan",
        "inf",
        "9" * 400 + "s",
        0,
        -1,
        math.nan,
        math.inf,
        True,
        10**400,
    ],
)
def test_what_is_no_duration(text: Any) -> None:
    with pytest.raises(InvalidValue, match='such as "250ms"') as caught:
        parse_duration(text, "ttl")
    assert (caught.value.field, caught.value.value) == ("ttl", text) or math.isnan(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (90.0, "1m30s"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (15.0, "15s"),
        (3600.0, "1h"),
        (90061.0, "1d1h1m1s"),
        (1500.001, "1500.001s"),
        (1234567.891, "1234567.891s"),
        (0.0, "0s"),
    ],
)
def test_as_people_write_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(min_value=1, max_value=10**12))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, abs=1e-4)


@given(st.text() | st.integers() | st.floats())
def test_reads_a_positive_number_or_refuses(anything: Any) -> None:
    try:
        seconds = parse_duration(anything)
    except InvalidValue:
        return
    assert 0 < seconds < math.inf
