"""The files of the project, and its README taken apart."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("events", "projector", "clients", "tests", "docs", "examples", "benchmarks", ".ci")


@cache
def committed() -> tuple[Path, ...]:
    """The files of the project: those git knows of, or in a copy without git all that are not left-overs."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return tuple(path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file())
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return tuple(path for path in (*ROOT.iterdir(), *inside) if path.is_file() and "__pycache__" not in path.parts)


def readme() -> str:
    """The text of the README."""
    return (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of the README in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", readme(), re.MULTILINE | re.DOTALL)


def first_commands() -> list[str]:
    """The indented commands that the README begins with, without what is said about them."""
    return [line.split("#")[0].strip() for line in re.findall(r"^    (make .*)$", readme(), re.MULTILINE)]
