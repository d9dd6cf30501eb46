"""What docs/joining.md promises: its examples run, and its words are those of the code."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from pathlib import Path
from typing import get_args

from adsum.clients import Registry
from adsum.clients.errors import How
from adsum.events.roles import Role
from tests.daemons import adsumd
from tests.house.tree import ROOT


def page() -> str:
    """The text of the page."""
    return (ROOT / "docs" / "joining.md").read_text()


def examples() -> list[str]:
    """Its programs."""
    return re.findall(r"^```python\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)


async def output(code: str, folder: Path) -> list[str]:
    """What a program prints, with warnings as errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", code,
        cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode().splitlines()


async def test_the_example_of_one_call_runs(tmp_path: Path) -> None:
    """All in one process; its broker takes a free port here."""
    code = examples()[0].replace("127.0.0.1:4222", "127.0.0.1:0")
    assert await output(code, tmp_path) == ["['writer at 127.0.0.1:50051']"]


async def test_the_example_of_leases_runs(tmp_path: Path) -> None:
    """Against a real adsumd. The watch may be faster than the projector: then nobody is there at first."""
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as running:
        told = await output(examples()[1].replace("nats://127.0.0.1:4222", running.url), tmp_path)
    assert [line for line in told if line != "[]"] == ["['10.0.0.7:8080']"]


def test_the_words_are_those_of_the_code() -> None:
    """How a life ends, what a role may say, and how long a call waits."""
    for how in get_args(How):
        assert f"`{how}`" in page()
    [also] = re.findall(r"# also (.*)$", page(), re.MULTILINE)
    assert {"capabilities", "protocol", *re.findall(r"\w+", also)} - {"and"} == set(Role.__struct_fields__)
    assert inspect.signature(Registry.leases).parameters["timeout"].default == 5.0


def test_the_page_is_linked_and_its_links_lead_somewhere() -> None:
    assert "](docs/joining.md)" in (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\((?!http)([^)#]+)", page()):
        assert (ROOT / "docs" / path).exists()
