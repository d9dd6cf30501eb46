"""What docs/scale.md promises: its commands are known, every scenario is told of, and its links lead somewhere."""

from __future__ import annotations

import re
import shlex

from benchmarks.__main__ import _parser
from benchmarks.compare import load, names
from tests.house.tree import ROOT


def page() -> str:
    """The text of the page."""
    return (ROOT / "docs" / "scale.md").read_text()


def commands() -> list[list[str]]:
    """What its blocks and its lines ask of the benchmarks."""
    told = re.findall(r"python -m benchmarks ((?:compare|plot|fetch|list)[^`\n]*)", page())
    return [shlex.split(line, comments=True) for line in told]


def test_the_commands_are_known() -> None:
    """The parser takes them, and the scenario has such contenders and such a field."""
    assert commands()
    for arguments in commands():
        given = _parser().parse_args(arguments)
        for name in getattr(given, "scenarios", ()):
            scenario = load(name)
            assert set(given.only) <= set(scenario.contenders), arguments
            assert {key for key, _ in given.set} <= set(scenario.sizes["quick"][0]), arguments


def test_every_scenario_has_its_section_and_its_command() -> None:
    """No more and no less."""
    assert sorted(re.findall(r"^## .*`(\w+)`$", page(), re.M)) == names()
    assert {name for arguments in commands() for name in arguments[1:2]} >= set(names())


def test_the_targets_of_make_are_there() -> None:
    """Both, as the page calls them."""
    made = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"make (bench[a-z-]*)", page()))
    assert targets == {"bench", "bench-full"}
    assert all(re.search(rf"^{target}:", made, re.M) for target in targets)


def test_the_page_is_linked_and_its_links_lead_somewhere() -> None:
    assert "](docs/scale.md)" in (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\((?!http)([^)#]+)", page()):
        assert (ROOT / "docs" / path).exists()
