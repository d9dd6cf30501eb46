"""docs/reliability.md: every row has a test, every test that it names is there, and every test of a row is named."""

from __future__ import annotations

import re

from tests.house.tree import ROOT

PAGE = (ROOT / "docs" / "reliability.md").read_text()
ROWS = re.findall(r"^\| (\w+) \|.*?\|.*?\| (.*?) \|", PAGE, re.MULTILINE)[1:]
FAULTS = ROOT / "tests" / "faults"


def named() -> set[tuple[str, str]]:
    """(module, function) of every test that the page names in its table."""
    return set(re.findall(r"`(test_\w+)::(test_\w+)`", PAGE))


def written() -> set[tuple[str, str]]:
    """(module, function) of every test in tests/faults."""
    return {
        (file.stem, name)
        for file in FAULTS.glob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
    }


def test_every_row_of_the_list_of_faults_has_a_test() -> None:
    numbers = [int(row) for row, _ in ROWS if row.isdigit()]
    assert numbers == list(range(1, 29))
    for row, tests in re.findall(r"^\| (\d+) \|[^|]*\|[^|]*\| ([^|]*) \|", PAGE, re.MULTILINE):
        assert f"test_row_{int(row):02}_" in tests, f"row {row} names no test of its own: {tests}"


def test_every_test_that_is_named_is_there() -> None:
    assert named() - written() == set()


def test_every_test_of_a_row_is_named() -> None:
    assert {(module, name) for module, name in written() if name.startswith("test_row_")} - named() == set()
