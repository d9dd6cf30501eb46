"""The commands that docs/operations.md tells, section by section, to be run as they stand there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.house.tree import ROOT

__all__ = ["documented"]

BACKUPS = "/var/backups"


def documented(section: str, backups: Path) -> list[list[str]]:
    """The arguments of every `adsum` of a section, its backups in a folder of the test's."""
    page = (ROOT / "docs" / "operations.md").read_text()
    [text] = [part for part in page.split("\n## ") if part.startswith(f"{section}\n")]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    return [[word.replace(BACKUPS, str(backups)) for word in line[1:]] for line in lines if line[0] == "adsum"]
