"""Three nats-servers of a test's own, clustered on loopback."""

from __future__ import annotations

import asyncio
import signal
import sysconfig
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable
from adsum.events.streams import EVENTS

from .cli.programs import free_port
from .waiting import until

__all__ = ["ELECTIONS", "Node", "cluster", "jetstream_answers"]

SIZE = 3
ELECTIONS = 60.0
"""Seconds within which a cluster on a busy machine is whole again."""


class Node:
    """One server: it can be killed, started again on the same data, paused and resumed."""

    def __init__(self, number: int, folder: Path, ports: list[int], routes: list[int], advertise: bool) -> None:
        self.url = f"nats://127.0.0.1:{ports[number]}"
        self._config = folder / f"n{number}.conf"
        urls = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
        self._config.write_text(
            f"listen: 127.0.0.1:{ports[number]}\n"
            f"server_name: n{number}\n"
            f'jetstream {{ store_dir: "{folder / f"n{number}"}", sync_interval: always }}\n'
            f"cluster {{ name: test, no_advertise: {not advertise}, listen: 127.0.0.1:{routes[number]}\n"
            f"  routes: [{urls}] }}\n"
        )
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, or start it again."""
        self._process = await asyncio.create_subprocess_exec(
            str(Path(sysconfig.get_path("scripts")) / "nats-server"),
            "-c",
            str(self._config),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def stop(self, sent: signal.Signals = signal.SIGTERM) -> None:
        """End it: politely, or with SIGKILL."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(sent)
            await process.wait()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)


@asynccontextmanager
async def cluster(folder: Path, *, advertise: bool = False) -> AsyncIterator[list[Node]]:
    """Three nodes for as long as the block runs.

    They do not tell a client of each other unless they are to `advertise`, so it comes only where its test wants it to.
    """
    ports = _free_ports(2 * SIZE)
    nodes = [Node(n, folder, ports[:SIZE], ports[SIZE:], advertise) for n in range(SIZE)]
    try:
        for node in nodes:
            await node.start()
        yield nodes
    finally:
        for node in nodes:
            await node.stop(signal.SIGKILL)


async def jetstream_answers(bus: Broker) -> None:
    """Wait until the nodes have found each other and JetStream answers; adsumd itself waits for 10 s only."""

    async def look() -> str:
        try:
            return "answers" if await bus.stream_info(EVENTS) is None else "has streams"
        except BrokerUnavailable as error:
            return str(error)

    await until(look, lambda found: found == "answers", seconds=ELECTIONS)


def _free_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port())
    return list(ports)
