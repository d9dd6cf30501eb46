"""What the README promises: its commands exist, its examples run, and its first command works for a stranger."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click
import psutil  # type: ignore[import-untyped]  # it has no stubs
import pytest

from adsum.clients import connect
from adsum.clients.cli.app import cli
from adsum.events.config import check_config
from adsum.events.description import (
    DEFAULT_HEARTBEAT,
    DEFAULT_TTL,
    MAX_CAPABILITIES,
    MAX_ENDPOINTS,
    MAX_METADATA,
    MAX_TTL,
)
from adsum.projector.main import main as daemon
from tests.daemons import adsumd
from tests.house.tree import ROOT, blocks, committed, first_commands, readme
from tests.waiting import until

SET_UP_LIMIT = 240.0
COMPOSE = {"up", "logs", "kill", "down"}


# ---- the first command


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as a stranger gets it: the committed files in an empty folder."""
    folder = tmp_path_factory.mktemp("stranger") / "adsum"
    for path in committed():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    return folder


@asynccontextmanager
async def started(copy: Path, data: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The README's first command in the copy, once it said that it is ready."""
    command = shlex.split(first_commands()[0])
    own = f"ARGS=--listen 127.0.0.1:0 --data {data}"
    known = {name: os.environ[name] for name in os.environ if not name.startswith(("MAKE", "VIRTUAL_ENV", "PYTHON"))}
    with (copy / "stderr").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            f"PYTHON={sys._base_executable}",  # type: ignore[attr-defined]  # a Python without what the tests need
            own,
            cwd=copy,
            env=known,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    family = [psutil.Process(process.pid)]
    try:
        await _ready(process, copy)
        family += family[0].children(recursive=True)
        yield process
    finally:
        for member in family:
            if member.is_running():
                member.kill()
        await process.wait()


async def _ready(process: asyncio.subprocess.Process, copy: Path) -> None:
    said: list[str] = []
    assert process.stdout is not None
    async with asyncio.timeout(SET_UP_LIMIT):
        async for line in process.stdout:
            said.append(line.decode())
            if said[-1].startswith("adsumd ready:"):
                return
    raise AssertionError(f"it ended: {said}; {(copy / 'stderr').read_text()}")


def _daemon(process: asyncio.subprocess.Process) -> psutil.Process:
    [found] = [child for child in psutil.Process(process.pid).children() if "adsumd" in " ".join(child.cmdline())]
    return found


@pytest.mark.timeout(300)
async def test_the_first_command_works_for_a_stranger(copy: Path, tmp_path: Path) -> None:
    assert first_commands() == ["make run", "make test"]
    async with started(copy, tmp_path / "data") as process:
        told = _daemon(process)
        broker = told.children()
        told.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 20) == 0
        assert not any(child.is_running() for child in broker)
    assert not (copy / ".venv" / "bin" / "pytest").exists()

    async with started(copy, tmp_path / "data") as process:  # again: nothing to set up, and what was stored is there
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 2
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C in the terminal
        await asyncio.wait_for(process.wait(), 20)
        await until(lambda: [member for member in family if member.is_running()], lambda alive: not alive)


# ---- the other commands


def sh_lines() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines() if line.strip()]


@pytest.mark.parametrize("line", sh_lines())
def test_a_command_is_known(line: str) -> None:
    program, *arguments = shlex.split(line)
    if program == ".venv/bin/adsum":
        _check_adsum(arguments)
    elif program == "docker":
        assert arguments[0] == "compose"
        assert arguments[1] in COMPOSE
        services = re.findall(r"^  ([a-z0-9-]+):", (ROOT / "compose.yaml").read_text(), re.MULTILINE)
        assert {argument for argument in arguments[2:] if argument[0] != "-"} <= set(services)
    else:
        raise AssertionError(f"nobody knows {program}")


def _check_adsum(arguments: list[str]) -> None:
    name, *rest = arguments
    with click.Context(cli) as context:
        command = cli.get_command(context, name)
        assert command is not None, f"adsum has no command {name}"
        command.make_context(name, list(rest), parent=context)


def test_targets_and_options_that_the_text_names_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`?make ([a-z]+)", readme())) <= set(targets)
    linked = re.findall(r"\]\((?!http)([^)#]+)", readme())
    assert [path for path in linked if not (ROOT / path).exists()] == []


def test_the_daemon_has_the_options_that_the_text_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        daemon(["--help"])
    told = capsys.readouterr().out
    for option in ("--nats", "--replicas", "--catalog", "--config", "--data", "--listen"):
        assert option in told


# ---- the examples


async def _run(example: str, url: str) -> list[str]:
    """The lines that it prints; it ends well, and silently otherwise."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        example.replace("nats://127.0.0.1:4222", url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode().splitlines()


async def test_the_example_of_a_call_runs(tmp_path: Path, web: int) -> None:
    """It calls what the tour registers."""
    example, _ = blocks("python")
    async with (
        adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as running,
        connect(running.url) as registry,
        registry.register("hello", port=web),
    ):
        assert await _run(example, running.url) == [f"200 from http://127.0.0.1:{web}/"]


@pytest.fixture
def web() -> Iterator[int]:
    """The port of a server like that of the tour."""
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


async def test_the_python_example_runs(tmp_path: Path) -> None:
    _, example = blocks("python")
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as running:
        first, second, third = await _run(example, running.url)
    assert re.fullmatch(r"joined [0-9a-f-]{36} 127\.0\.0\.1:8080", first)
    assert second == "['127.0.0.1:8080']"
    assert third.startswith("live proven complete ")


def test_the_configuration_example_is_read() -> None:
    [example] = blocks("toml")
    config = check_config(tomllib.loads(example))
    assert config.dsn == "postgresql://adsum@db/adsum"
    assert (config.heartbeat_interval, config.poll_interval, config.ttl) == (5.0, 60.0, 15.0)
    assert config.nats is not None


def test_the_defaults_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| (.+) \|$", readme(), re.MULTILINE))
    assert (DEFAULT_HEARTBEAT, DEFAULT_TTL, MAX_TTL) == (5.0, 15.0, 25 * 60)
    assert rows["heartbeat"].startswith("5 s ")
    assert rows["TTL: silent for so long is stale, for twice as long gone"].startswith("15 s ")
    assert rows["endpoints, capabilities"].endswith(f"{MAX_ENDPOINTS}, {MAX_CAPABILITIES}")
    assert rows["metadata"].endswith(f"{MAX_METADATA} bytes as JSON")
