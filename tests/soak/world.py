"""What a schedule is done to: brokers, catalogs, two adsumd, services, watchers, and the network between them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.cluster import Node, cluster
from tests.daemons import AdsumDaemon, start_adsumd
from tests.databases import PostgresServer
from tests.proxy import Proxy, proxy_to
from tests.servers import Server
from tests.soak.observer import connected
from tests.soak.program import Program, python
from tests.soak.recording import Recorder
from tests.soak.schedule import Schedule

__all__ = ["DAEMONS", "Link", "World", "open_world"]

DAEMONS = ("adsumd-0", "adsumd-1")
SERVICES = ("orders", "payments", "stock", "mail")
VIEWS = (("--capability", "even"), (), ("orders", "payments"), ())


class Link:
    """The way of one process to the brokers, over a proxy for each of them."""

    def __init__(self, proxies: list[Proxy]) -> None:
        self.proxies = proxies

    @property
    def url(self) -> str:
        """What the process connects to."""
        return ",".join(proxy.url for proxy in self.proxies)


class World:
    """Everything that runs, by name. `url` is the way of who is no part of it, past every proxy."""

    def __init__(self, folder: Path, schedule: Schedule, recorder: Recorder) -> None:
        self.folder, self.schedule, self.recorder = folder, schedule, recorder
        self.record = folder / "record"
        self.links: dict[str, Link] = {}
        self.programs: dict[str, Program] = {}
        self.daemons: dict[str, list[AdsumDaemon]] = {}
        self.server: Server | None = None
        self.nodes: list[Node] = []
        self.database: PostgresServer | None = None
        self.dsn: str | None = None
        self.lost: set[str] = set()
        self.url = ""

    def named(self, kind: str) -> list[Program]:
        """The programs whose name begins with this, but for those that are never to come back."""
        return [one for name, one in self.programs.items() if name.startswith(kind) and name not in self.lost]

    def leader(self) -> str:
        """The adsumd that said last that it leads, by the number of its tick."""
        ticks: dict[str, int] = {}
        for name, runs in self.daemons.items():
            said = [int(tick) for run in runs for tick in re.findall(r"leading from tick (\d+) on", run.stderr)]
            ticks[name] = max(said, default=-1)
        return max(ticks, key=lambda name: ticks[name])

    def errors(self) -> dict[str, str]:
        """What each program said on its standard error."""
        said = {name: (self.folder / f"{name}.err") for name in self.programs if name not in self.daemons}
        told = {name: path.read_text(errors="replace") for name, path in said.items() if path.exists()}
        return told | {name: "".join(run.stderr for run in runs) for name, runs in self.daemons.items()}


@asynccontextmanager
async def open_world(folder: Path, schedule: Schedule, recorder: Recorder) -> AsyncIterator[World]:
    """All of it, running, for as long as the block lasts."""
    world = World(folder, schedule, recorder)
    async with AsyncExitStack() as stack:
        urls = await _open_brokers(world, stack)
        world.url = ",".join(urls)
        if schedule.world == "postgres":
            world.database = await asyncio.to_thread(PostgresServer)
            stack.callback(world.database.close)
            world.dsn = world.database.dsn(await world.database.create())
        for name in _names(schedule):
            proxies = [await stack.enter_async_context(proxy_to(url)) for url in urls]
            world.links[name] = Link(proxies)
        _add_programs(world)
        stack.push_async_callback(_end_all, world)
        for name in DAEMONS:
            await world.programs[name].start()
            await world.daemons[name][-1].ready()
        await asyncio.gather(*(program.start() for name, program in world.programs.items() if name not in DAEMONS))
        yield world


async def _open_brokers(world: World, stack: AsyncExitStack) -> list[str]:
    if world.schedule.world == "cluster":
        (world.folder / "cluster").mkdir()
        world.nodes = await stack.enter_async_context(cluster(world.folder / "cluster"))
        urls = [node.url for node in world.nodes]
    else:
        # An event is on disk when it is acknowledged, as with the embedded broker.
        store = f'jetstream {{ store_dir: "{world.folder / "broker" / "store"}", sync_interval: always }}'
        world.server = server = await Server(world.folder / "broker", store, jetstream=False).start()
        stack.push_async_callback(server.stop)
        urls = [server.url]
    client = await connected(",".join(urls))  # a cluster needs a moment before it answers
    await client.close()
    return urls


def _names(schedule: Schedule) -> list[str]:
    services = [f"service-{number}" for number in range(schedule.size.services)]
    return [*DAEMONS, *services, *(f"watcher-{number}" for number in range(schedule.size.watchers))]


def _add_programs(world: World) -> None:
    size = world.schedule.size
    for name in DAEMONS:
        world.daemons[name] = []
        world.programs[name] = Program(name, _daemon(world, name), world.recorder)
    world.programs["observer"] = _program(world, "observer", ["--url", world.url])
    for number in range(size.services):
        name = f"service-{number}"
        arguments = ["--name", name, "--service", SERVICES[number % len(SERVICES)]]
        arguments += ["--ids", "fixed" if number % 3 else "fresh", "--count", str(size.instances)]
        arguments += ["--heartbeat", str(size.heartbeat), "--ttl", str(size.ttl)]
        world.programs[name] = _program(world, name, ["--url", world.links[name].url, *arguments])
    for number in range(size.watchers):
        name = f"watcher-{number}"
        view = VIEWS[number % len(VIEWS)]
        world.programs[name] = _program(world, name, ["--url", world.links[name].url, "--name", name, *view])


def _program(world: World, name: str, arguments: list[str]) -> Program:
    module = f"tests.soak.{name.split('-')[0]}"
    # nats-py itself leaves a socket unclosed at each reconnect, which only the observer shows: it has nothing else.
    strict, log = name != "observer", world.folder / f"{name}.err"
    begin = python(module, [*arguments, "--record", str(world.record)], log, strict=strict)
    return Program(name, begin, world.recorder)


def _daemon(world: World, name: str) -> Callable[[], Awaitable[asyncio.subprocess.Process]]:
    async def begin() -> asyncio.subprocess.Process:
        arguments = ["--nats", world.links[name].url]
        arguments += ["--replicas", "3"] if world.nodes else []
        arguments += ["--catalog", world.dsn] if world.dsn else []
        daemon = await start_adsumd(world.folder / name, arguments)
        world.daemons[name].append(daemon)
        return daemon.process

    return begin


async def _end_all(world: World) -> None:
    await asyncio.gather(*(program.kill() for program in world.programs.values()))
