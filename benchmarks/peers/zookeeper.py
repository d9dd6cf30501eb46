"""ZooKeeper: an ephemeral node an instance, kept by its session's pings.

The client is kazoo, all registrations of a process in one session (the best case for ZooKeeper). What
heartbeats and watches cost without kazoo's threads: see `zookeeper_raw`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from adsum.events.signals import Instance
from benchmarks import making

from . import client
from .debian import REMEDY, ROOT, jars, program
from .serving import Server, free_port, process

PATH = "/fleet"
JARS = (
    *("zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar", "slf4j-log4j12.jar", "log4j-1.2.jar", "commons-cli.jar"),
    *("commons-io.jar", "metrics-core.jar", "snappy-java.jar", "jackson-core.jar", "jackson-databind.jar"),
    *("jackson-annotations.jar", "netty-*.jar"),
)
CONFIG = """\
tickTime=2000
dataDir={folder}/data
clientPort={port}
clientPortAddress=127.0.0.1
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=*
"""
LOGGING = """\
log4j.rootLogger=WARN, A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.SimpleLayout
"""


def missing() -> str | None:
    """See the package."""
    if program("java") is None:
        return f"no java: {REMEDY}"
    if not jars("zookeeper.jar"):
        return f"no zookeeper: {REMEDY}"
    return client.missing_packages("kazoo")


def version() -> str:
    """The archive's name tells it."""
    found = [match[1] for path in jars("zookeeper-*.jar") if (match := re.search(r"zookeeper-([\d.]+)\.jar$", path))]
    return f"ZooKeeper {found[0] if found else '?'}, {client.versions('kazoo')}"


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Server]:
    """One server; it flushes before it answers."""
    port = free_port()
    (folder / "zoo.cfg").write_text(CONFIG.format(folder=folder, port=port))
    (folder / "log4j.properties").write_text(LOGGING)

    def answers() -> bool:
        with socket.create_connection(("127.0.0.1", port), 1) as one:
            one.sendall(b"ruok")
            return one.recv(64) == b"imok"

    arguments = [
        str(shutil.which("java") or program("java")),
        *("-Xmx1000m", "-Djava.net.preferIPv4Stack=true", f"-Djava.library.path={ROOT / 'usr/lib/jni'}"),
        *("-cp", ":".join([str(folder), *jars(*JARS)])),
        *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(folder / "zoo.cfg")),
    ]
    async with process(arguments, folder, answers) as pid:
        yield Server(f"127.0.0.1:{port}", {"server": pid}, folder)


class Client(client.Client):
    """See `client.Client`. `ttl`: the session's timeout."""

    def __init__(self, address: str, ttl: float = 40.0) -> None:
        super().__init__(address)
        self._ttl = ttl

    async def open(self) -> None:
        """A session; its thread pings."""
        from kazoo.client import KazooClient

        self._loop = asyncio.get_running_loop()
        self._zookeeper = KazooClient(hosts=self.address, timeout=self._ttl)
        await asyncio.to_thread(self._zookeeper.start, 60)
        await asyncio.to_thread(self._zookeeper.ensure_path, PATH)

    async def close(self) -> None:
        """See `client.Client`."""
        await asyncio.to_thread(self._zookeeper.stop)
        await asyncio.to_thread(self._zookeeper.close)

    def _answer(self, asked: Any) -> asyncio.Future[Any]:
        """A future of this loop for one of kazoo's."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle() -> None:
            if future.done():
                return
            if asked.successful():
                future.set_result(asked.value)
            else:
                future.set_exception(asked.exception)

        asked.rawlink(lambda _: self._loop.call_soon_threadsafe(settle))
        return future

    async def register(self, number: int, ttl: float) -> None:
        """A node."""
        await self._answer(self._zookeeper.create_async(_path(number), making.value(number, ttl), ephemeral=True))

    async def register_many(self, numbers: Sequence[int], ttl: float) -> None:
        """All in flight."""

        def work() -> None:
            values = [making.value(number, ttl) for number in numbers]
            made = [
                self._zookeeper.create_async(_path(number), value, ephemeral=True)
                for number, value in zip(numbers, values, strict=True)
            ]
            for one in made:
                one.get()

        await asyncio.to_thread(work)

    async def heartbeat(self, numbers: Sequence[int]) -> None:
        """The session's thread does it."""

    async def change(self, number: int, version: str) -> None:
        """Its bytes."""
        await self._answer(self._zookeeper.set_async(_path(number), making.value(number, version=version)))

    async def ask(self, number: int) -> Instance | None:
        """A get."""
        data, _ = await self._answer(self._zookeeper.get_async(_path(number)))
        return making.read(data)

    async def load(self) -> Sequence[Instance]:
        """The children's names, then a get of each, all in flight."""

        def work() -> list[Instance]:
            return self._read(self._zookeeper.get_children(PATH))

        return await asyncio.to_thread(work)

    def _read(self, names: Iterable[str]) -> list[Instance]:
        from kazoo.exceptions import NoNodeError

        found = []
        for one in [self._zookeeper.get_async(f"{PATH}/{name}") for name in names]:
            with suppress(NoNodeError):
                found.append(making.read(one.get()[0]))
        return found

    @asynccontextmanager
    async def watch(self, heard: client.Heard) -> AsyncIterator[object]:
        """kazoo's ChildrenWatch, which reads all names at each change, and a get of each who came."""
        cache: client.Cache = {}
        loaded = False

        def got(asked: Any) -> None:
            if asked.successful():
                instance = making.read(asked.value[0])
                cache[instance.id] = instance
                heard(instance.id, instance)

        def children(names: Sequence[str]) -> None:
            nonlocal loaded
            now = set(names)
            if not loaded:
                cache.update((instance.id, instance) for instance in self._read(now))
                known.update(now)
                loaded = True
                return
            for name in known - now:
                cache.pop(name, None)
                heard(name, None)
            for name in now - known:
                self._zookeeper.get_async(f"{PATH}/{name}").rawlink(got)
            known.clear()
            known.update(now)

        known: set[str] = set()
        await asyncio.to_thread(self._zookeeper.ChildrenWatch, PATH, children)
        yield cache


def _path(number: int) -> str:
    return f"{PATH}/{making.id_of(number)}"
