"""In a terminal: Ctrl-C is the child's already, job control works, tables fit."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from adsum.clients.cli.output import fitting
from tests.waiting import until

from .programs import SCRIPTS, Adsum, children, free_port, types
from .terminal import Terminal

Opener: TypeAlias = Callable[..., Awaitable[Terminal]]

COUNTS_CTRL_C = """
import signal, socket, sys, time
count = 0
def got(*_):
    global count
    count += 1
    print("interrupts", count, flush=True)
signal.signal(signal.SIGINT, got)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while not count:
    time.sleep(0.01)
time.sleep(1.5)  # time for a second one, which must not come
sys.exit(40 + count)
"""


@pytest.fixture
async def terminal(adsum: Adsum) -> AsyncIterator[Opener]:
    """Starts `adsum` with these arguments in a terminal."""
    opened: list[Terminal] = []

    async def start(*arguments: str, columns: int = 120) -> Terminal:
        opened.append(await Terminal.start([str(SCRIPTS / "adsum"), *arguments], adsum.env, columns))
        return opened[-1]

    yield start
    for one in opened:
        await one.close()


async def test_ctrl_c_reaches_the_child_once(adsum: Adsum, terminal: Opener) -> None:
    port = free_port()
    shown = await terminal("register", "x", "--port", str(port), "--", sys.executable, "-c", COUNTS_CTRL_C, str(port))
    await shown.shows("registered")
    shown.type("\x03")
    assert await shown.code() == 41
    assert shown.screen.count("interrupts") == 1
    assert types(await adsum.events()) == ["registered", "deregistered"]


async def test_kill_int_is_forwarded_also_in_a_terminal(adsum: Adsum, terminal: Opener) -> None:
    port = free_port()
    shown = await terminal(
        "register", "x", "--port", str(port), "--drain-wait", "0",
        "--", sys.executable, "-c", COUNTS_CTRL_C, str(port),
    )  # fmt: skip
    await shown.shows("registered")
    os.kill(shown.pid, 2)
    assert await shown.code() == 41


async def test_an_interactive_program_has_the_terminal(adsum: Adsum, terminal: Opener) -> None:
    shown = await terminal(
        "register", "x", "--port", str(free_port()), "--", "sh", "-c", "read name; echo hello $name; exit 5"
    )
    shown.type("world\n")
    await shown.shows("hello world")
    assert await shown.code() == 5


async def test_the_child_stays_in_the_wrappers_process_group(adsum: Adsum, terminal: Opener) -> None:
    shown = await terminal("register", "x", "--port", str(free_port()), "--", "sleep", "60")
    (child,) = await until(lambda: children(shown.pid), lambda found: len(found) == 1)
    assert os.getpgid(child) == os.getpgid(shown.pid)
    await until(lambda: blocked_signals(child), lambda blocked: blocked == 0)  # once its program has begun
    shown.type("\x03")
    assert await shown.code() == 130


async def test_following_commands_end_quietly_with_130(adsum: Adsum, terminal: Opener) -> None:
    for command, ready in (("log", "SEQUENCE"), ("watch", "CHANGE")):
        shown = await terminal(command, *(["--follow"] if command == "log" else []))
        await shown.shows(ready)
        shown.type("\x03")
        assert await shown.code() == 130
        assert "Traceback" not in shown.screen


async def test_colour_only_in_a_terminal(adsum: Adsum, terminal: Opener) -> None:
    shown = await terminal("status")
    assert await shown.code() == 1  # there is no adsumd
    assert "\x1b[" in shown.screen
    assert "\x1b[" not in (await adsum("status")).out


def blocked_signals(pid: int) -> int:
    """The mask of signals that a process blocks."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))


def test_columns_are_left_out_from_the_right_until_the_rest_fits() -> None:
    widths = [10] * 6
    assert fitting(range(6), widths, 70) == [0, 1, 2, 3, 4, 5]
    assert fitting(range(6), widths, 69) == [0, 1, 2, 3, 4]
    assert fitting(range(6), widths, 5) == [0, 1, 2, 3]
