"""The real spine: nats-server, adsumd with failpoints, a cache, a process with registrations; proxies before both."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from adsum.clients import Change, Directory, Registry, connect
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_tick, encode
from adsum.events.description import Description
from adsum.events.lifecycle import Event
from adsum.events.log import Outrun, last_word, say
from adsum.events.names import Key
from adsum.events.reader import Message, StreamReader
from adsum.events.settings import BrokerSettings
from adsum.events.signals import Tick
from adsum.events.streams import BEATS, EVENTS, read_epoch
from adsum.projector.failpoints import Point
from adsum.projector.leader import RESIGNED
from tests.daemons import AdsumDaemon, start_adsumd
from tests.databases import Database
from tests.faults import failing
from tests.faults.content import digest, refold, tables
from tests.proxy import Proxy, proxy_to
from tests.servers import Server

__all__ = ["PROCESS", "SERVICE", "Spine", "running_spine"]

SERVICE = "orders"
PROCESS = "a process"
"""The name with which the registrations of `process` sign."""


class Spine:
    """Made by `running_spine`. `changes`: all that the cache told, in order."""

    broker: Broker
    epoch: str
    daemon: AdsumDaemon
    cache: Directory
    process: Registry
    before_cache: Proxy
    before_process: Proxy

    def __init__(self, folder: Path, database: Database) -> None:
        self.database, self.changes = database, list[Change]()
        self._folder, self._order = folder, folder / "order"
        self._url = ""

    # ---- the projector

    async def start(self) -> None:
        """Start adsumd and wait for its line."""
        program = (str(failing.__file__), str(self._order))
        arguments = ("--nats", self._url, "--catalog", self.database.dsn)
        self.daemon = await start_adsumd(self._folder / "daemon", arguments, program=program)
        await self.daemon.ready()

    async def stop(self) -> None:
        """End adsumd politely."""
        await self.daemon.stop()
        assert "Traceback" not in self.daemon.stderr, self.daemon.stderr

    async def kill(self) -> None:
        """End adsumd as kill -9 does, unless it is dead already."""
        if self.daemon.process.returncode is None:
            self.daemon.process.kill()
        await self.buried()

    def order(self, point: Point, times: int = 1) -> None:
        """Let adsumd kill itself when it passes this point the n-th time from now on."""
        failing.give(self._order, point, times)

    async def died(self, within: float) -> bool:
        """Whether adsumd has obeyed."""
        try:
            return await self.daemon.ended(within) == -signal.SIGKILL
        except TimeoutError:
            return False

    async def buried(self) -> None:
        """After a death: nobody is to die again, and the lease is free, so that a successor need not wait 5 s for it.

        (That it waits, and for what, is tested where leadership is.)
        """
        assert await self.daemon.ended() == -signal.SIGKILL, self.daemon.stderr
        self._order.unlink(missing_ok=True)
        raw = await self.broker.last_message(BEATS, subjects.TICK)
        if raw is not None:
            free = Tick(leader=RESIGNED, number=decode_tick(raw.data or b"").number + 1)
            headers = {"Nats-Expected-Last-Subject-Sequence": str(raw.seq)}
            await self.broker.store(BEATS, subjects.TICK, encode(free), headers)

    # ---- the log

    async def say(self, key: Key, event: Event) -> int:
        """Say it in the knowledge of the last word, whoever says something meanwhile; its sequence."""
        for _ in range(20):
            last = await last_word(self.broker, key)
            try:
                return await say(self.broker, key, event, last.sequence if last else 0)
            except Outrun:
                continue
        raise AssertionError(f"outrun again and again: {event}")

    async def log(self, start: int = 1) -> list[Message]:
        """The log's messages from this sequence on."""
        info = await self.broker.stream_info(EVENTS)
        messages: list[Message] = []
        if info is not None and info.state.last_seq >= start:
            async with StreamReader(self.broker, EVENTS, start=start) as reader:
                while batch := await reader.to_end():
                    messages += batch
        return messages

    # ---- what catalog and cache hold

    async def in_catalog(self) -> dict[str, object]:
        """Who is there, by id, as the catalog has it."""
        shown = ("term", "revision", "liveness", "health", "mode", "reason", "description")
        rows = await self.database.run(f"SELECT instance, {', '.join(shown)} FROM instances")
        found = {id: dict(zip(shown, values, strict=True)) for id, *values in rows}
        for life in found.values():
            life["description"] = msgspec.json.decode(life["description"])
        return found

    def in_cache(self) -> dict[str, object]:
        """Who is there, by id, as the cache has it. Raises NotLoaded."""
        return {
            found.id: {
                "term": found.term,
                "revision": found.revision,
                "liveness": found.liveness,
                "health": found.health,
                "mode": found.mode,
                "reason": found.reason,
                "description": {
                    field: msgspec.to_builtins(getattr(found, field)) for field in Description.__struct_fields__
                },
            }
            for found in self.cache.instances()
        }

    async def unlike_refold(self) -> str | None:
        """How the catalog differs from what its log makes of an empty one; None: not at all."""
        stored, folded = await tables(self.database), await refold(await self.log(), self.epoch)
        if digest(stored) == digest(folded):
            return None
        unlike = {name: (stored[name], folded[name]) for name in stored if stored[name] != folded[name]}
        return f"the catalog and a fold of its log from zero differ: {unlike}"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of it, for as long as the block runs."""
        async with AsyncExitStack() as stack:
            server = await Server(self._folder / "broker").start()
            stack.push_async_callback(server.stop)
            self._url = server.url
            self.broker = Broker.open(BrokerSettings(url=server.url), "test")
            stack.push_async_callback(self.broker.close)
            await self.broker.ready(10)
            await self.start()
            stack.push_async_callback(lambda: self.daemon.stop())
            self.epoch = await read_epoch(self.broker)
            self.before_process = await stack.enter_async_context(proxy_to(server.url))
            self.before_cache = await stack.enter_async_context(proxy_to(server.url))
            self.process = await stack.enter_async_context(connect(self.before_process.url, name=PROCESS))
            reader = await stack.enter_async_context(connect(self.before_cache.url, name="a reader"))
            self.cache = await stack.enter_async_context(reader.directory(SERVICE))
            watching = asyncio.create_task(self._watch(), name="watch the cache")
            stack.callback(watching.cancel)
            yield

    async def _watch(self) -> None:
        async for change in self.cache.changes():
            self.changes.append(change)


@asynccontextmanager
async def running_spine(folder: Path, database: Database) -> AsyncIterator[Spine]:
    """A spine for as long as the block runs."""
    spine = Spine(folder, database)
    async with spine.running():
        yield spine
