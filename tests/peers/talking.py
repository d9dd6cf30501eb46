"""Peers that speak a protocol of a line each way over real sockets, and a crowd of them that a directory knows."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from adsum.clients import Directory, Instance, Outliers, Policy
from adsum.clients.peers import Blame, Bounds, Peer, Peers
from adsum.events.description import Endpoint
from adsum.events.signals import Departed
from tests.clients.announcer import instance

__all__ = ["Crowd", "Declined", "Refused", "Talk", "Talker", "Telephone", "ask", "unentered"]


class Declined(Exception):
    """It says that it does not take the call."""


class Refused(Exception):
    """It says that the call makes no sense."""


class Talker:
    """One who listens on loopback. A line "hang" gets no answer, "break" resets, all others what is in `answers`, or
    the talker's id and the line."""

    def __init__(self, id: str) -> None:
        self.id, self.port = id, 0
        self.taken, self.heard = 0, list[str]()
        self.answers: dict[str, str] = {"who": f"default/orders/{id}"}
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """How many it has now."""
        return len(self._open)

    @property
    def listening(self) -> bool:
        """Whether it can be called."""
        return self._server is not None and self._server.is_serving()

    async def start(self) -> None:
        """Listen, at the same port as before."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Be gone, and all connections with it."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.taken += 1
        self._open.add(task)
        try:
            while line := (await reader.readline()).decode().strip():
                self.heard.append(line)
                if line == "break":
                    break
                if line != "hang":
                    writer.write(f"{self.answers.get(line, f'{self.id} {line}')}\n".encode())
        except (OSError, asyncio.CancelledError):  # ended from the other side, or by the test
            pass
        finally:
            writer.transport.abort()
            self._open.discard(task)


class Talk:
    """A connection to one; lines are asked one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.lock = asyncio.Lock()
        self.broken = False
        self.missed = 0
        """Calls that found it gone."""

    @property
    def gone(self) -> bool:
        """Whether the other side hung up."""
        return self.reader.at_eof() or self.reader.exception() is not None

    async def say(self, line: str) -> str:
        """What it answers."""
        async with self.lock:
            if self.gone:
                self.missed += 1
                raise ConnectionRefusedError("it is gone, and nothing was sent")
            try:
                self.writer.write(f"{line}\n".encode())
                answer = (await self.reader.readline()).decode().strip()
            except asyncio.CancelledError:
                self.broken = True  # the answer may come for the next one
                raise
        if not answer:
            raise ConnectionResetError("it hung up")
        if answer == "declined":
            raise Declined(line)
        if answer == "refused":
            raise Refused(line)
        return answer


class Telephone:
    """A dialer of that protocol, that counts. `hold`: dials wait until it is set. `blind`: it sees no connection go."""

    def __init__(self) -> None:
        self.blind = False
        self.talks: list[Talk] = []
        self.dialed, self.open = 0, 0
        self.hold: dict[int, asyncio.Event] = {}
        """By port."""

    async def dial(self, instance: Instance, endpoint: Endpoint) -> Talk:
        self.dialed += 1
        if endpoint.port in self.hold:
            await self.hold[endpoint.port].wait()
        talk = Talk(*await asyncio.open_connection(endpoint.host, endpoint.port))
        self.open += 1
        self.talks.append(talk)
        return talk

    async def close(self, connection: Talk) -> None:
        self.open -= 1
        connection.writer.close()
        with contextlib.suppress(OSError):  # the other side was faster
            await connection.writer.wait_closed()

    async def identify(self, connection: Talk, instance: Instance, endpoint: Endpoint) -> str | None:
        return await connection.say("who") if "health.main" in instance.metadata else None

    def stands(self, connection: Talk) -> bool:
        return self.blind or not (connection.broken or connection.gone)

    def blame(self, error: Exception) -> Blame:
        if isinstance(error, ConnectionRefusedError):
            return Blame.UNREACHABLE
        if isinstance(error, Declined):
            return Blame.DECLINED
        return Blame.BROKEN if isinstance(error, OSError) else Blame.ANSWERED


def ask(line: str) -> Any:
    """What `Peers.call` takes."""

    async def say(peer: Peer[Talk]) -> str:
        return await peer.connection.say(line)

    return say


def unentered(outliers: Outliers) -> Directory:
    """A directory of "orders" that is never entered: it has no broker, and is told by hand."""
    nobody = cast(Any, None)
    return Directory(
        nobody,
        nobody,
        nobody,
        nobody,
        "default",
        ("orders",),
        capability=None,
        poll_interval=60,
        wait=0,
        outliers=outliers,
    )


class Crowd:
    """A directory that is told by hand, without a broker; `reports` are those that peers made."""

    def __init__(self) -> None:
        self.phone, self.outliers = Telephone(), Outliers()
        self.talkers: dict[str, Talker] = {}
        self.reports: list[tuple[str, str]] = []
        self.directory = unentered(self.outliers)
        self._revision = 0

    def load(self) -> None:
        """Let it know that nobody is there."""
        self.directory._census.believe("e1")
        self.directory._census.begin_load()
        self.directory._census.end_load(0.0)

    async def join(self, *ids: str) -> None:
        """Talkers begin to listen, and are registered."""
        for id in ids:
            talker = self.talkers[id] = Talker(id)
            await talker.start()
            self.tell(id)

    def tell(self, id: str, **fields: object) -> None:
        """What the directory hears of one; it has no health endpoint unless its metadata says so."""
        self._revision += 1
        port = self.talkers[id].port if id in self.talkers else 1
        plain = {"endpoints": (Endpoint(host="127.0.0.1", port=port, protocol="talk"),), "term": f"term of {id}"}
        told = instance("orders", id, self._revision, **(plain | fields))
        self.directory._tell(self.directory._census.take(told, 0.0))

    @property
    def listening(self) -> set[str]:
        """Who listens."""
        return {id for id, talker in self.talkers.items() if talker.listening}

    def leave(self, id: str) -> None:
        """It is deregistered; it still listens."""
        self._revision += 1
        gone = Departed(
            epoch="e1", revision=self._revision, namespace="default", service="orders", id=id, term=f"term of {id}"
        )
        self.directory._tell(self.directory._census.take(gone, 0.0))

    def peers(self, *, policy: Policy | None = None, verify: bool = False, **bounds: Any) -> Peers[Talk]:
        """Peers over it."""
        selection = self.directory.select(policy=policy)
        reporting = cast(Any, self)
        return Peers(self.directory, selection, self.phone, reporting, Bounds(**bounds), own=False, verify=verify)

    async def connect_past(self, id: str, peers: Peers[Talk]) -> None:
        """Connect to whom the policy picks after `id`: no dial takes of the time of a call to him."""
        self.tell(id, mode="draining")
        await peers.call(ask("hello"), timeout=30)
        self.tell(id)

    async def report(self, instance: Instance, endpoint: str, reason: str, ago: float) -> bool:
        """As Reporting."""
        self.reports.append((instance.id, reason))
        return True

    async def close(self) -> None:
        """End all talkers."""
        for talker in self.talkers.values():
            await talker.stop()


@asynccontextmanager
async def crowd(*ids: str) -> AsyncIterator[Crowd]:
    """One whose talkers end with the block."""
    made = Crowd()
    made.load()
    try:
        await made.join(*ids)
        yield made
    finally:
        await made.close()
