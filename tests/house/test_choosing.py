"""What docs/choosing.md promises: its example runs, and it names every policy and the defaults of the code."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from pathlib import Path

from adsum import clients
from adsum.clients import Directory, Outliers, Policy
from tests.daemons import adsumd
from tests.house.tree import ROOT


def page() -> str:
    """The text of the page."""
    return (ROOT / "docs" / "choosing.md").read_text()


async def test_the_example_runs(tmp_path: Path) -> None:
    """Against a real adsumd, with warnings as errors; it prints who was called, and why nobody could be."""
    [example] = re.findall(r"^```python\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as running:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-W",
            "error",
            "-c",
            example.replace("nats://127.0.0.1:4222", running.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, err.decode()) == (0, "")
    *calls, nobody = out.decode().splitlines()
    assert sorted(line.split()[1] for line in calls) == ["orders-1", "orders-1", "orders-2"]
    assert nobody == "nobody to call of default/orders: none of the 3 registered will do: 3 not in zone 'us-1'"


def test_every_policy_is_told_of() -> None:
    """Each in the table, and no other."""
    known = {
        name for name in clients.__all__ if inspect.isclass(cls := getattr(clients, name)) and issubclass(cls, Policy)
    }
    assert set(re.findall(r"^\| `(\w+)\(", page(), re.MULTILINE)) == known - {"Policy"}


def test_the_numbers_are_those_of_the_code() -> None:
    """Ejection and panic."""
    default = {name: told.default for name, told in inspect.signature(Outliers).parameters.items()}
    assert (default["failures"], default["first"], default["longest"], default["share"]) == (5, 30.0, 300.0, 0.5)
    assert "Five failed calls in a row" in page()
    assert inspect.signature(Directory.select).parameters["panic"].default == 0.5
    assert inspect.signature(Directory.select).parameters["fail_open"].default is False
