"""A real adsumd as a process of its own, and sending what a service would."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event, decode_topology, encode
from adsum.events.errors import BrokerUnavailable, Undecodable
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, Event, Registered
from adsum.events.log import last_word, say
from adsum.events.names import Key
from adsum.events.reader import StreamReader
from adsum.events.signals import Heartbeat, Topology
from adsum.events.streams import EVENTS, TOPOLOGY
from tests.making import OWNER, description

READY_LIMIT = 30.0


class AdsumDaemon:
    """A running adsumd: its ready line, its broker's URL, what it said on stderr so far."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process, self._log = process, log
        self.line = ""

    @property
    def url(self) -> str:
        """The broker in the ready line."""
        return dict(part.split("=", 1) for part in self.line.split()[2:])["nats"]

    @property
    def stderr(self) -> str:
        """All it said on stderr."""
        return self._log.read_text(errors="replace")

    async def ready(self) -> None:
        """Wait for the line on stdout."""
        assert self.process.stdout is not None
        async with asyncio.timeout(READY_LIMIT):
            line = (await self.process.stdout.readline()).decode().strip()
        assert line.startswith("adsumd ready:"), f"{line!r}; stderr: {self.stderr}"
        self.line = line

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def ended(self, within: float = 20.0) -> int:
        """Its exit code, once it ends."""
        async with asyncio.timeout(within):
            return await self.process.wait()

    async def stop(self) -> None:
        """End it, by force if it does not."""
        if self.process.returncode is not None:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            await self.ended()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            raise AssertionError(f"adsumd did not end on SIGTERM; stderr: {self.stderr}") from None


@asynccontextmanager
async def adsumd(
    folder: Path, *arguments: str, ready: bool = True, env: Mapping[str, str] | None = None
) -> AsyncIterator[AdsumDaemon]:
    """Run `adsumd --data FOLDER ARGUMENTS` for as long as the block lasts."""
    daemon = await start_adsumd(folder, arguments, env)
    try:
        if ready:
            await daemon.ready()
        yield daemon
    finally:
        await daemon.stop()


async def start_adsumd(
    folder: Path,
    arguments: Sequence[str],
    env: Mapping[str, str] | None = None,
    program: Sequence[str] = ("-m", "adsum.projector.main"),
) -> AdsumDaemon:
    """Start one without waiting for its line; `program`: what Python runs with the arguments."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}-{new_id()[-6:]}.log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *program,
            "--data",
            str(folder),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONWARNINGS": "error", **(env or {})},
        )
    return AdsumDaemon(process, log)


class Service:
    """What a service says on the bus, by hand, so that a test decides each word and when it is said."""

    def __init__(self, broker: Broker, key: Key, heartbeat: float = 0.5, ttl: float = 1.5) -> None:
        self.broker, self.key = broker, key
        self.said = description(heartbeat=heartbeat, ttl=ttl)
        self.term = ""
        self.revision = 0
        self.counter = 0
        self._beating: asyncio.Task[None] | None = None

    async def register(self) -> int:
        """Begin a life; its revision."""
        term = new_id()
        last = await last_word(self.broker, self.key)
        event = Registered(id=term, term=term, by=OWNER, instance=self.said)
        self.revision = await say(self.broker, self.key, event, last.sequence if last else 0)
        self.term, self.counter = term, 0
        await self.beat()
        return self.revision

    async def beat(self) -> None:
        """One heartbeat."""
        self.counter += 1
        await self.broker.publish(subjects.beat(self.key, self.term), encode(Heartbeat(self.counter)))

    async def deregister(self) -> int:
        """End the life politely; the event's sequence."""
        event = Deregistered(id=new_id(), term=self.term, by=OWNER)
        last = await last_word(self.broker, self.key)
        return await say(self.broker, self.key, event, last.sequence if last else 0)

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Beat at the heartbeat's interval for as long as the block lasts."""

        async def beat_for_ever() -> None:
            while True:
                if self.broker.connected:
                    await self.beat()
                await asyncio.sleep(self.said.heartbeat)

        task = asyncio.create_task(beat_for_ever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def topology(broker: Broker, key: Key) -> Topology | None:
    """What ADSUM_TOPOLOGY holds of an instance; None also where that cannot be read, or not now."""
    try:
        raw = await broker.last_message(TOPOLOGY, subjects.topology(key))
        return decode_topology(raw.data or b"") if raw is not None else None
    except (Undecodable, BrokerUnavailable):
        return None


async def events_of(broker: Broker, key: Key) -> list[Event]:
    """All that the log says of an instance."""
    found: list[Event] = []
    async with StreamReader(broker, EVENTS, [subjects.event(key)]) as reader:
        while messages := await reader.to_end():
            found += [decode_event(message.data) for message in messages]
    return found
