"""Running `owner.py`: services that are processes of their own, to be killed, paused, cut off, and told what to do."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.cli.programs import Running, alive, environment, start
from tests.waiting import until

PROGRAM = Path(__file__).with_name("owner.py")
HEARTBEAT, TTL = 0.3, 1.2


def one(
    id: str, service: str = "orders", heartbeat: float = HEARTBEAT, ttl: float = TTL, **more: Any
) -> dict[str, Any]:
    """The options of `register` for one instance."""
    return {"id": id, "service": service, "port": 8080, "heartbeat": heartbeat, "ttl": ttl} | more


class Owner:
    """A process that owns one or more registrations."""

    def __init__(self, running: Running) -> None:
        self.running = running

    @property
    def pid(self) -> int:
        """Its process."""
        return self.running.pid

    @property
    def alive(self) -> bool:
        """Whether that process runs: it is never started again."""
        return alive(self.pid)

    @property
    def log(self) -> list[str]:
        """What it logged so far, each line with its level first."""
        return self.running.err

    def states(self, id: str) -> list[tuple[str, str]]:
        """Every (state, term) of a registration, in order."""
        return [(line["state"], line["term"]) for line in self.running.events if line["id"] == id and "state" in line]

    async def reaches(self, id: str, state: str, seconds: float = 15.0) -> str:
        """Wait until a registration is in a state; its term."""
        states = await until(lambda: self.states(id), lambda seen: bool(seen) and seen[-1][0] == state, seconds)
        return states[-1][1]

    async def logs(self, text: str, seconds: float = 15.0) -> str:
        """Wait for a line of its log that contains `text`."""
        return await self.running.says(text, seconds)

    def tell(self, id: str, what: str, **given: Any) -> None:
        """Have it call a method of a registration."""
        assert self.running.process.stdin is not None
        self.running.process.stdin.write(json.dumps({"id": id, "do": what, "with": given}).encode() + b"\n")

    async def did(self, id: str, what: str, times: int = 1, seconds: float = 15.0) -> dict[str, Any]:
        """Wait until it has done so for the n-th time; what came of it."""
        done = await until(
            lambda: [line for line in self.running.events if line["id"] == id and line.get("did") == what],
            lambda found: len(found) >= times,
            seconds,
        )
        return done[times - 1]

    def signal(self, sent: signal.Signals) -> None:
        """Send it a signal."""
        self.running.send(sent)

    async def kill(self) -> None:
        """End it at once."""
        self.signal(signal.SIGKILL)
        await self.running.code()

    async def leave(self) -> None:
        """End it politely."""
        self.signal(signal.SIGTERM)
        assert await self.running.code() == 0, self.log


@asynccontextmanager
async def owner(
    url: str, *registrations: Mapping[str, Any], env: Mapping[str, str] | None = None, ping: float = 0.25, **more: Any
) -> AsyncIterator[Owner]:
    """A process that registers these, for as long as the block runs; `more`: further options of `connect`."""
    running = await start(
        [
            sys.executable,
            str(PROGRAM),
            url,
            json.dumps({"ping": ping} | more),
            *(json.dumps({"wait": 1.0} | dict(registration)) for registration in registrations),
        ],
        environment(url) | dict(env or {}),
        feed=True,
    )
    try:
        yield Owner(running)
    finally:
        await running.stop()
