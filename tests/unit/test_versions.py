"""The rule by which versions, which are free text, are in a range or not."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.clients.choosing.versions import VersionRange
from adsum.events.errors import InvalidValue

NUMBERS = st.lists(st.integers(0, 30), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("text", "taken", "refused"),
    [
        (">=1.4,<2", ["1.4", "1.4.0", "v1.9.9", "1.10", "1.5.0-rc.1", "1.4+build.7"], ["1.3.9", "2", "2.0.0-rc.1", ""]),
        ("<2.0.0-rc.2", ["2.0.0-rc.1", "2-alpha", "1.9"], ["2.0.0-rc.2", "2.0.0-rc.10", "2"]),
        (">=1.4", ["1.4", "1.4.0"], ["1.4-rc.1", "1.4rc1", "blue"]),
        (">1", ["1.0.1", "2-rc.1"], ["1", "1.0.0", "1-rc.1", "1+later"]),
        ("<=1", ["1.0", "1-rc.1", "0.9"], ["1.0.1"]),
        ("==1.4", ["1.4", "v1.4.0", "1.4+x"], ["1.4.1", "1.4-rc.1", "blue"]),
        ("!=1.4", ["1.5", "blue", ""], ["1.4.0"]),
        ("!=blue,>=1", ["1", "2"], ["blue", "0.9"]),
        ("== blue", ["blue"], ["Blue", "1"]),
        ("1.4", ["1.4"], ["1.4.0", "v1.4"]),
        ("blue", ["blue"], ["blue-2", ""]),
        ("", [""], ["1"]),
        (">=2026-01-31", ["2026-02-01", "2026-01-31"], ["2026-01-30", "2025-12-31"]),
        (">=1-alpha.2", ["1-alpha.10", "1-alpha.beta", "1-beta", "1"], ["1-alpha.1", "1-alpha", "0"]),
    ],
)
def test_a_version_is_in_a_range_or_not(text: str, taken: list[str], refused: list[str]) -> None:
    """Every line of the rule, with what it takes and what it does not."""
    wanted = VersionRange(text)
    assert [version for version in taken if not wanted.takes(version)] == []
    assert [version for version in refused if wanted.takes(version)] == []


@pytest.mark.parametrize("text", [">=blue", "1.4,1.5", ">=1,", ",", ">=", "=1", "~=1.4", "<2, blue"])
def test_what_is_no_range_is_refused(text: str) -> None:
    """With the text itself and a range that would do, or why not."""
    with pytest.raises(InvalidValue, match="version"):
        VersionRange(text)


@given(NUMBERS, NUMBERS)
def test_numbers_are_compared_as_numbers(one: list[int], other: list[int]) -> None:
    """Whatever their lengths: missing ones are 0."""
    longest = max(len(one), len(other))
    padded = [numbers + [0] * (longest - len(numbers)) for numbers in (one, other)]
    version, bound = (".".join(map(str, numbers)) for numbers in (one, other))
    for sign, holds in (("<", operator.lt), ("==", operator.eq), (">", operator.gt), (">=", operator.ge)):
        assert VersionRange(f"{sign}{bound}").takes(version) == holds(*padded)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_a_version(version: str, other: str) -> None:
    """No version makes a range fail, and one that is taken by >= and by <= is equal."""
    assert VersionRange(">=1.4,<2").takes(version) in (True, False)
    assert not (VersionRange(">=1").takes(version) and VersionRange("<1").takes(version))
    assert VersionRange("==1").takes(version) != VersionRange("!=1").takes(version)
