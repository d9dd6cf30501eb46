"""The rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import tomllib
import types
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from adsum.clients.cli.tools import load
from adsum.events import tools
from tests.house.tree import ROOT, committed

PACKAGES = ("events", "projector", "clients")
LONGEST = 400
HOSTS = re.compile(r"\b(pypi|pythonhosted|npmjs|debian|ghcr|quay|gcr)\.(org|com|io)\b|\bdocker\.io\b|\bdocker\.com\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|root|farm|home/[a-z]+|tmp/[a-z]+|Users|opt)/")


def modules(*folders: str) -> list[Path]:
    """The Python files below these folders."""
    return [path for path in committed() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]


def name_of(path: Path) -> str:
    """The module that a file of the three packages is imported as."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("adsum", *(part for part in parts if part != "__init__")))


def test_no_module_is_longer_than_a_person_reads() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in committed() if path.suffix == ".py"}
    assert {str(path): lines for path, lines in lengths.items() if lines >= LONGEST} == {}


def test_nothing_names_a_registry_or_a_path_of_one_machine() -> None:
    found = []
    for path in committed():
        if path.suffix in (".png", ".svg") or path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if HOSTS.search(line) or MACHINE_PATHS.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


@pytest.mark.parametrize("path", modules(*PACKAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_tells_what_it_is_for_and_exports_what_is_public(path: Path) -> None:
    module = importlib.import_module(name_of(path))
    defined = {
        name
        for name, value in vars(module).items()
        if isinstance(value, type | types.FunctionType)
        and not name.startswith("_")
        and value.__module__ == module.__name__
    }
    exported = getattr(module, "__all__", ())
    assert defined <= set(exported), f"not in __all__: {defined - set(exported)}"
    assert len(set(exported)) == len(exported)
    assert [name for name in exported if not hasattr(module, name)] == []
    if path.read_text():
        assert module.__doc__


@pytest.mark.parametrize("package", PACKAGES)
def test_the_face_of_a_package_is_exactly_what_it_imports(package: str) -> None:
    face = importlib.import_module(f"adsum.{package}")
    tree = ast.parse((ROOT / package / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported - {"annotations"} == set(getattr(face, "__all__", ()))
    assert all(isinstance(node, ast.ImportFrom | ast.Assign | ast.Expr) for node in tree.body), "no logic in a face"


def test_every_folder_with_code_is_installed() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(told) == sorted({name_of(path.parent / "__init__.py") for path in modules(*PACKAGES)})


def test_every_tool_that_the_command_loads_by_name_is_there() -> None:
    """Each fits its Protocol: mypy sees no more of what an entry point names than the name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = project["entry-points"][tools.GROUP]
    assert {entry.name: entry.value for entry in entry_points(group=tools.GROUP)} == told
    kinds = {"rebuild": tools.Rebuild, "verify": tools.Verify, "verify-alone": tools.VerifyAlone}
    assert told.keys() == kinds.keys()
    for name, kind in kinds.items():
        found = inspect.signature(load(name)).parameters.values()
        wanted = list(inspect.signature(kind.__call__).parameters.values())[1:]
        assert [(one.name, one.kind) for one in found] == [(one.name, one.kind) for one in wanted], name


def test_the_validator_of_a_soak_shares_no_code_with_the_product() -> None:
    """Two folds of one log that agree prove something only if neither knows the other."""
    own = {f"tests.soak.{name}" for name in ("history", "story", "sight", "validator")}
    for name in own:
        tree = ast.parse((ROOT / f"{name.replace('.', '/')}.py").read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert {module for module in imported if module.partition(".")[0] not in sys.stdlib_module_names} <= own, name


def test_no_test_sleeps_for_luck() -> None:
    """A sleep stands in a loop that looks or beats, or says in a comment what it is for."""
    found = []
    for path in modules("tests"):
        if path == ROOT / "tests" / "waiting.py":
            continue
        text = path.read_text()
        lines = text.splitlines()
        for call in _sleeps_outside_loops(ast.parse(text)):
            if "#" not in lines[call.lineno - 1]:
                found.append(f"{path.relative_to(ROOT)}:{call.lineno}: {lines[call.lineno - 1].strip()}")
    assert found == []


def _sleeps_outside_loops(node: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.While | ast.For | ast.AsyncFor):
            continue
        if isinstance(child, ast.Call) and _is_sleep(child):
            yield child
        yield from _sleeps_outside_loops(child)


def _is_sleep(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr != "sleep" or not call.args:
        return False
    argument = call.args[0]
    return not (isinstance(argument, ast.Constant) and argument.value == 0)


def test_ci_runs_exactly_make_check() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if re.match(r"\s*make\b", line)]
    assert commands == ["make check </dev/null"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert re.search(
        r"^check: lint\b.*\n(\t.*\n)*\t@\$\(MAKE\)[^\n]* test ", (ROOT / "Makefile").read_text(), re.MULTILINE
    )


def test_every_dependency_is_pinned() -> None:
    pinned = re.findall(r"^([A-Za-z0-9_.-]+)==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    known = {re.sub(r"[-_.]+", "-", name).lower() for name in pinned}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[\[<>=;~! ]", one)[0]).lower() for one in asked}
    assert names - known == {"adsum"}
