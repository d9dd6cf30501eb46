"""Redis: keys that expire. A cache reads all of them anew every second, or hears keyspace notifications.

redis.asyncio with hiredis, one pipeline of 500 commands after another over two connections. By default the append-only
file is flushed each second; `fsync="always"` flushes before the answer. Notifications are sent once and kept nowhere.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from adsum.events.signals import Instance
from benchmarks import making

from . import client
from .debian import REMEDY, ROOT, program
from .serving import Server, free_port, process

PIPELINE = 500
CONNECTIONS = 2
EVENTS = ("set", "expired", "del")


def missing() -> str | None:
    """See the package."""
    if program("redis-server") is None:
        return f"no redis-server: {REMEDY}"
    return client.missing_packages("redis", "hiredis")


def _environment() -> dict[str, str]:
    libraries = [str(path) for path in (ROOT / "usr" / "lib").glob("*-linux-gnu")]
    return {"LD_LIBRARY_PATH": ":".join(libraries)} if str(ROOT) in str(program("redis-server")) else {}


def version() -> str:
    """Of the program and the client."""
    asked = [str(program("redis-server")), "--version"]
    told = subprocess.run(asked, env=_environment(), capture_output=True, text=True, check=True).stdout
    number = next(word for word in told.split() if word.startswith("v=")).removeprefix("v=")
    return f"redis-server {number}, {client.versions('redis', 'hiredis')}"


@asynccontextmanager
async def running(folder: Path, fsync: str = "everysec") -> AsyncIterator[Server]:
    """One server."""
    port = free_port()

    def answers() -> bool:
        with socket.create_connection(("127.0.0.1", port), 1) as one:
            one.sendall(b"PING\r\n")
            return one.recv(64).startswith(b"+PONG")

    arguments = [
        str(program("redis-server")),
        *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", "--maxclients", "20000"),
        *("--appendonly", "yes", "--appendfsync", fsync, "--notify-keyspace-events", "E$gx"),
    ]
    async with process(arguments, folder, answers, _environment()) as pid:
        yield Server(str(port), {"server": pid}, folder)


class Client(client.Client):
    """See `client.Client`."""

    def __init__(self, address: str, group: str = making.SERVICE, notified: bool = False) -> None:
        super().__init__(address, group)
        self._prefix = f"{group}:"
        self._notified = notified
        self._milliseconds: dict[int, int] = {}

    async def open(self) -> None:
        """Two connections for pipelines, and a pool for single calls at the same time, made as they are needed."""
        import redis.asyncio

        where: dict[str, Any] = {"host": "127.0.0.1", "port": int(self.address)}
        self._lines = [redis.asyncio.Redis(**where, single_connection_client=True) for _ in range(CONNECTIONS)]
        for line in self._lines:
            await line.ping()
        pool = redis.asyncio.BlockingConnectionPool(**where, max_connections=32, timeout=60)
        self._pool = redis.asyncio.Redis(connection_pool=pool)

    async def close(self) -> None:
        """All of them."""
        for one in (*self._lines, self._pool):
            await one.aclose()

    async def register(self, number: int, ttl: float) -> None:
        """SET with PX."""
        self._milliseconds[number] = int(ttl * 1000)
        await self._pool.set(self._key(number), making.value(number, ttl), px=int(ttl * 1000))

    async def register_many(self, numbers: Sequence[int], ttl: float) -> None:
        """Pipelined."""
        milliseconds = int(ttl * 1000)
        self._milliseconds |= dict.fromkeys(numbers, milliseconds)
        await self._pipelined(
            numbers, lambda line, number: line.set(self._key(number), making.value(number, ttl), px=milliseconds)
        )

    async def heartbeat(self, numbers: Sequence[int]) -> None:
        """PEXPIRE, pipelined."""
        await self._pipelined(numbers, lambda line, number: line.pexpire(self._key(number), self._milliseconds[number]))

    async def _pipelined(self, numbers: Sequence[int], add: Callable[[Any, int], object]) -> None:
        async def one(line: Any, part: Sequence[int]) -> None:
            for first in range(0, len(part), PIPELINE):
                pipeline = line.pipeline(transaction=False)
                for number in part[first : first + PIPELINE]:
                    add(pipeline, number)
                await pipeline.execute()

        await asyncio.gather(*(one(line, numbers[n::CONNECTIONS]) for n, line in enumerate(self._lines)))

    async def change(self, number: int, version: str) -> None:
        """SET again."""
        await self._lines[0].set(self._key(number), making.value(number, version=version), keepttl=True)

    async def ask(self, number: int) -> Instance | None:
        """GET."""
        found = await self._lines[0].get(self._key(number))
        return making.read(found) if found is not None else None

    async def load(self) -> Sequence[Instance]:
        """SCAN and MGET, a thousand at a time."""
        found: list[Instance] = []
        cursor = 0
        while True:
            cursor, keys = await self._lines[0].scan(cursor, match=self._prefix + "*", count=1000)
            if keys:
                found += [making.read(value) for value in await self._lines[0].mget(keys) if value is not None]
            if cursor == 0:
                return found

    @asynccontextmanager
    async def watch(self, heard: client.Heard) -> AsyncIterator[object]:
        """Polled, or notified: then a load once it hears, and an MGET of what was set since."""
        ready = asyncio.Event()
        following = asyncio.create_task(
            self._follow(heard, ready) if self._notified else client.polled(self.load, heard, ready)
        )
        await ready.wait()
        try:
            yield None
        finally:
            following.cancel()
            await asyncio.wait([following])

    async def _follow(self, heard: client.Heard, ready: asyncio.Event) -> None:
        import redis.asyncio

        async with AsyncExitStack() as stack:
            listening = redis.asyncio.Redis(host="127.0.0.1", port=int(self.address))
            stack.push_async_callback(listening.aclose)
            hearing = listening.pubsub(ignore_subscribe_messages=True)
            stack.push_async_callback(hearing.aclose)
            await hearing.subscribe(*(f"__keyevent@0__:{event}" for event in EVENTS))
            await hearing.get_message(timeout=5)
            cache = {instance.id: instance for instance in await self.load()}
            due: asyncio.Queue[bytes] = asyncio.Queue()
            fetching = asyncio.create_task(self._fetch(due, cache, heard))
            stack.callback(fetching.cancel)
            ready.set()
            prefix = self._prefix.encode()
            async for message in hearing.listen():
                key: bytes = message["data"]
                if not key.startswith(prefix):
                    continue
                if message["channel"].endswith(b":set"):
                    due.put_nowait(key)
                else:
                    id = key[len(self._prefix) :].decode()
                    cache.pop(id, None)
                    heard(id, None)

    async def _fetch(self, due: asyncio.Queue[bytes], cache: client.Cache, heard: client.Heard) -> None:
        while True:
            keys = [await due.get()]
            while len(keys) < PIPELINE and not due.empty():
                keys.append(due.get_nowait())
            for value in await self._lines[1].mget(keys):
                if value is not None:
                    instance = making.read(value)
                    cache[instance.id] = instance
                    heard(instance.id, instance)

    def _key(self, number: int) -> str:
        return self._prefix + making.id_of(number)
