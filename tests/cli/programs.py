"""Running the real command: to its end, or in the background with what it prints at hand."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import until

SCRIPTS = Path(sysconfig.get_path("scripts"))
LOWEST_PORT = 10_000
LISTENER = """
import signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: (print("got TERM", flush=True), sys.exit(7)))
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
while True:
    server.accept()[0].close()
"""
"""A program that listens at the port it is given, and ends with 7 on SIGTERM."""


def listener(port: int) -> list[str]:
    """The command line of LISTENER."""
    return [sys.executable, "-c", LISTENER, str(port)]


def free_port() -> int:
    """A port that nobody listens at, and none of those that the system gives to outgoing connections.

    Of these one can be taken before our program listens there, or while it is restarted.
    """
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = LOWEST_PORT + secrets.randbelow(first_given - LOWEST_PORT)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:  # somebody listens there
            continue


def environment(url: str) -> dict[str, str]:
    """The environment of a command that speaks to the broker at `url`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ADSUM_")}
    return kept | {"ADSUM_NATS": url, "PYTHONUNBUFFERED": "1"}


@dataclass
class Result:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Its output as JSON, line by line."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Running:
    """A command in the background; `out` and `err` grow line by line."""

    process: asyncio.subprocess.Process
    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, sent: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(sent)

    def feed(self) -> None:
        """Close its standard input, after a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.close()

    async def code(self, seconds: float = 15.0) -> int:
        """Its exit code, once it has ended and all it printed was read."""
        async with asyncio.timeout(seconds):
            code = await self.process.wait()
        await asyncio.wait(self.readers, timeout=2)
        return code

    async def says(self, text: str, seconds: float = 10.0) -> str:
        """Wait for a line on standard error that contains `text`."""
        return await self._line(self.err, text, seconds)

    async def prints(self, text: str, seconds: float = 10.0) -> str:
        """Wait for a line on standard output that contains `text`."""
        return await self._line(self.out, text, seconds)

    async def _line(self, lines: list[str], text: str, seconds: float) -> str:
        """The first of `lines` that contains `text`; fails at once where the program ended without it."""

        def there(lines: list[str]) -> bool:
            return any(text in line for line in lines)

        def look() -> list[str]:
            ended = self.process.returncode is not None and all(reader.done() for reader in self.readers)
            assert not ended or there(lines), f"it ended without {text!r}; out: {self.out}, err: {self.err}"
            return lines

        await until(look, there, seconds)
        return next(line for line in lines if text in line)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it printed, each line JSON."""
        return [json.loads(line) for line in self.out]

    async def stop(self) -> None:
        """End it, if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        for reader in self.readers:
            reader.cancel()
        await asyncio.gather(*self.readers, return_exceptions=True)


def hear_all() -> None:
    """What runs these tests may ignore SIGHUP (nohup) or SIGINT (a shell, behind): its children inherit that."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def start(command: Sequence[str], env: dict[str, str], *, feed: bool = False, **options: Any) -> Running:
    """Start a program in the background; `feed`: its standard input waits for `Running.feed`."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=env,
        stdin=asyncio.subprocess.PIPE if feed else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**22,
        **({"preexec_fn": hear_all} | options),
    )
    running = Running(process)
    assert process.stdout is not None
    assert process.stderr is not None
    running.readers = [
        asyncio.create_task(_read(process.stdout, running.out)),
        asyncio.create_task(_read(process.stderr, running.err)),
    ]
    return running


async def _read(stream: asyncio.StreamReader, lines: list[str]) -> None:
    async for line in stream:
        lines.append(line.decode().rstrip("\n"))


class Adsum:
    """The command `adsum`, speaking to one broker. `daemon`: the adsumd that brought it, where one did."""

    def __init__(self, url: str, daemon: Running | None = None) -> None:
        self.url, self.daemon = url, daemon
        self.env = environment(url)
        self.started: list[Running] = []

    async def __call__(self, *arguments: str, env: dict[str, str] | None = None) -> Result:
        """Run it to its end."""
        running = await self.start(*arguments, env=env)
        code = await running.code(30)
        return Result(code, "".join(f"{line}\n" for line in running.out), "".join(f"{line}\n" for line in running.err))

    async def start(self, *arguments: str, env: dict[str, str] | None = None, **options: Any) -> Running:
        """Start it in the background; it is ended after the test."""
        running = await start([str(SCRIPTS / "adsum"), *arguments], env or self.env, **options)
        self.started.append(running)
        return running

    async def events(self, *arguments: str) -> list[dict[str, Any]]:
        """The log as `adsum log --json` tells it."""
        result = await self("log", "--json", *arguments)
        assert result.code == 0, result.err
        return result.lines

    async def stop(self) -> None:
        """End all that was started and still runs."""
        for running in self.started:
            await running.stop()


def types(events: Sequence[dict[str, Any]]) -> list[str]:
    """The types of events, in order."""
    return [event["type"] for event in events]


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
