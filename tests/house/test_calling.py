"""What docs/calling.md promises: its example runs, and the numbers are those of the code."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
from pathlib import Path

from adsum.clients import Registry
from adsum.clients.peers import retrying
from tests.cli.programs import free_port
from tests.daemons import adsumd
from tests.house.tree import ROOT


def page() -> str:
    """The text of the page."""
    return (ROOT / "docs" / "calling.md").read_text()


async def test_the_example_runs(tmp_path: Path) -> None:
    """Against a real adsumd, with warnings as errors."""
    [example] = re.findall(r"^```python\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)
    port = str(free_port())
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as running:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-W",
            "error",
            "-c",
            example.replace("nats://127.0.0.1:4222", running.url).replace("8081", port),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.decode()) == (0, "")
    assert out.decode().splitlines() == ["200 {'tea': 3}", f"{{'salt': 3}} from 127.0.0.1:{port}"]


def test_the_numbers_are_those_of_the_code() -> None:
    """The defaults of `peers()`, the patience and the budget."""
    default = {name: told.default for name, told in inspect.signature(Registry.peers).parameters.items()}
    text = " ".join(page().split())
    assert f"`timeout` ({default['timeout']:g} s)" in text
    assert f"at most {default['attempts']} peers (`attempts`)" in text
    assert f"`connect_timeout` ({default['connect_timeout']:g} s)" in text
    assert f"nobody used it for {default['idle']:g} s (`idle`)" in text
    assert f"at most {default['limit']} (`limit`)" in text
    assert (default["grace"], default["verify"]) == (0.0, False)
    assert (retrying.SHARE, retrying.LONGEST) == (0.25, 2.0)
    assert f"a quarter of the time that is left, at most {retrying.LONGEST:g} s" in text
    budget = {name: told.default for name, told in inspect.signature(retrying.Budget).parameters.items()}
    assert (f"a budget of {budget['reserve']:g}" in text, budget["gain"]) == (True, 0.2)
