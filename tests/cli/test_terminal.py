"""In a terminal: Ctrl-C is the child's already, job control works, tables fit."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from adsum.clients.cli.log import COLUMNS
from adsum.clients.cli.output import arrange, fitting
from adsum.events.broker import Broker
from adsum.events.description import Endpoint, describe
from adsum.events.ids import new_id
from tests.waiting import until

from .programs import SCRIPTS, Adsum, children, free_port, types
from .terminal import Terminal
from .test_reading import put

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
    for command, ready in (("log", "the log says nothing"), ("watch", "nobody is there yet")):
        shown = await terminal(command, *(["--follow"] if command == "log" else []))
        await shown.shows(ready)
        shown.type("\x03")
        assert await shown.code() == 130
        assert "Traceback" not in shown.screen


async def test_the_log_fits_into_80_columns(adsum: Adsum, terminal: Opener, broker: Broker) -> None:
    said = describe([Endpoint(host="10.0.0.9", port=80)], metadata={f"key-{at}": "value" for at in range(9)})
    id = new_id()
    await put(broker, "web", id, said)
    adsum.env["NO_COLOR"] = "1"
    shown = await terminal("log", columns=80)
    assert await shown.code() == 0
    await shown.shows("ttl 15s")
    lines = shown.screen.splitlines()
    assert max(map(len, lines)) <= 80
    assert f"{id[:6]}…{id[-6:]}" in shown.screen
    assert any(line.startswith("    10.0.0.9:80") for line in lines)
    assert "adsum: too narrow for TIME and ID in full; | less -S shows all" in lines
    wide = await terminal("log", columns=200)
    assert await wide.code() == 0
    await wide.shows(id)


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


@pytest.mark.parametrize(
    ("width", "shortened", "shown", "below"),
    [
        (None, [], [0, 1, 2, 3, 4, 5], False),
        (147, [], [0, 1, 2, 3, 4, 5], False),
        (146, [1], [0, 1, 2, 3, 4, 5], False),
        (136, [1, 3], [0, 1, 2, 3, 4, 5], False),
        (113, [1], [0, 1, 2, 3, 4, 5], True),
        (82, [1, 3], [0, 1, 2, 3, 4, 5], True),
        (81, [1, 3], [0, 1, 2, 3, 4], True),
        (66, [1, 3], [0, 2, 3, 4], True),
        (10, [1, 3], [0, 2, 3, 4], True),
    ],
)
def test_a_narrow_terminal_shortens_then_moves_then_leaves_out(
    width: int | None, shortened: list[int], shown: list[int], below: bool
) -> None:
    whole, short = [8, 24, 12, 36, 12, 13, 50], [8, 14, 12, 13, 12, 13, 50]
    layout = arrange(COLUMNS, whole, short, width)
    assert (sorted(layout.shortened), list(layout.shown), layout.below) == (shortened, shown, below)
