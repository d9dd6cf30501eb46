"""A fleet of servers under load: they are started, stopped in order and killed, and then each call is accounted for."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, ModeChanged
from adsum.events.names import Key
from adsum.events.signals import Instance
from tests.cli.programs import SCRIPTS, Running, environment, free_port, start
from tests.daemons import events_of, topology
from tests.peers.deployed import SERVICE
from tests.peers.load import Call
from tests.waiting import until

SETTLE = 0.3
"""Seconds between draining and stopping; short, for the sake of the test's time."""
ENDING = 40.0
"""Seconds in which a server has ended, on a busy machine and with a broker that is away."""


@dataclass
class Deployed:
    """One process. `gone`: between which two moments it went, if callers were not told before."""

    id: str
    port: int
    running: Running
    record: Path
    gone: tuple[float, float] | None = None

    def calls(self, sign: str) -> list[str]:
        """Those it got ("+") or did ("-"), in order."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [line[2:] for line in lines if line[0] == sign]

    @property
    def in_flight(self) -> set[str]:
        """Those it has begun and not ended."""
        return set(self.calls("+")) - set(self.calls("-"))


@dataclass
class Fleet:
    """`wrapped`: they know nothing of the registry, `adsum register` speaks for them. `shaky`: the broker may be away,
    so that nobody can be told of a server that stops."""

    url: str
    folder: Path
    broker: Broker
    stack: AsyncExitStack
    wrapped: bool = False
    shaky: bool = False
    servers: list[Deployed] = field(default_factory=list)
    """All there ever were."""
    callers: list[Running] = field(default_factory=list)

    async def open(self, id: str = "", port: int = 0, settle: float = SETTLE) -> Deployed:
        """Start one and wait until it may be called."""
        server = await self.launch(id or new_id(), port or free_port(), settle)
        await until(lambda: self.routable(server), seconds=ENDING)
        return server

    async def launch(self, id: str, port: int, settle: float = SETTLE) -> Deployed:
        """Start one."""
        record = self.folder / f"{id}-{new_id()[-6:]}.calls"
        broker = "" if self.wrapped else self.url
        command = [sys.executable, "-m", "tests.peers.deployed", broker, str(port), id, str(record), str(settle)]
        if self.wrapped:
            named = ["--host", "127.0.0.1", "--port", str(port), "--id", id, "--drain-wait", f"{settle}s"]
            command = [str(SCRIPTS / "adsum"), "register", SERVICE, *named, "--", *command]
        server = Deployed(id, port, await start(command, environment(self.url)), record)
        self.stack.push_async_callback(server.running.stop)
        self.servers.append(server)
        return server

    async def routable(self, server: Deployed) -> bool:
        """Whether callers are told that it may be called, as what it is."""
        assert server.running.process.returncode is None, server.running.err
        told = await topology(self.broker, Key("default", SERVICE, server.id))
        return (
            isinstance(told, Instance)
            and (told.mode, told.liveness) == ("serving", "up")
            and told.endpoint.port == server.port
        )

    async def close(self, server: Deployed) -> None:
        """Stop it in order, as an operator does."""
        before = time.monotonic()
        server.running.send(signal.SIGTERM)
        code = await server.running.code(ENDING)
        assert code == (128 + signal.SIGTERM if self.wrapped else -signal.SIGTERM), server.running.err
        assert [line for line in server.running.err if "Traceback" in line] == []
        assert server.in_flight == set()
        if not self.shaky:
            said = await events_of(self.broker, Key("default", SERVICE, server.id))
            assert [type(event) for event in said[-2:]] == [ModeChanged, Deregistered], said
        elif any("a change is not in the log" in line for line in server.running.err):
            server.gone = before, time.monotonic()

    async def kill(self, server: Deployed) -> set[str]:
        """Kill it while it does calls of both kinds; which these are."""

        def look() -> bool:
            server.running.send(signal.SIGSTOP)
            kinds = {call.rpartition("-")[2] for call in server.in_flight}
            if kinds != {"once", "twice"}:
                server.running.send(signal.SIGCONT)
            return kinds == {"once", "twice"}

        await until(look, seconds=30)
        before = time.monotonic()
        server.running.process.kill()
        await server.running.process.wait()
        server.gone = before, time.monotonic()
        return server.in_flight

    # ---- callers

    async def load(self, rate: float, count: int = 4) -> None:
        """Begin to call, from so many processes."""
        for number in range(count):
            command = [sys.executable, "-m", "tests.peers.load", self.url, f"c{number}", str(rate)]
            running = await start(command, environment(self.url))
            self.stack.push_async_callback(running.stop)
            self.callers.append(running)
        await self.more_calls(5)

    async def more_calls(self, count: int) -> None:
        """Wait until each caller has had so many more answers."""
        before = [len(caller.out) for caller in self.callers]

        def gained() -> list[int]:
            return [len(caller.out) - was for caller, was in zip(self.callers, before, strict=True)]

        await until(gained, lambda gained: min(gained) >= count, 60)

    async def calls(self) -> list[Call]:
        """Let the callers stop; all their calls."""
        for caller in self.callers:
            caller.send(signal.SIGTERM)
        for caller in self.callers:
            assert await caller.code(ENDING) == 0, caller.err
            assert [line for line in caller.err if "Traceback" in line] == []
        return [msgspec.json.decode(line, type=Call) for caller in self.callers for line in caller.out]

    # ---- judging

    async def account(self, lost: Callable[[Call], bool] = lambda _: False) -> list[Call]:
        """Check that no call was lost or done twice that must not be; `lost` tells which may be. Gives those."""
        calls = {call.id: call for call in await self.calls()}
        failed = [call for call in calls.values() if call.error]
        assert [call for call in failed if not lost(call)] == []
        got = Counter(call for server in self.servers for call in server.calls("+"))
        assert set(got) <= set(calls)
        assert [id for id, times in got.items() if times > 1 and not calls[id].idempotent] == []
        did: dict[str, set[str]] = {}
        for server in self.servers:
            did.setdefault(server.id, set()).update(server.calls("-"))
        assert [call for call in calls.values() if call.answered and call.id not in did[call.answered]] == []
        return failed

    def may_be_lost(self, call: Call) -> bool:
        """Whether it was in flight when a server went of which callers were not told, and must not be done twice."""
        went = [server.gone for server in self.servers if server.gone]
        return not call.idempotent and any(call.began <= last and call.ended >= first for first, last in went)


async def fleet_at(url: str, folder: Path, stack: AsyncExitStack, *, wrapped: bool = False) -> Fleet:
    """Servers and callers at a broker."""
    broker = Broker.open(BrokerSettings(url=url), "test")
    stack.push_async_callback(broker.close)
    await broker.ready(10)
    return Fleet(url, folder, broker, stack, wrapped)
