"""The log becomes another one while services and caches live: rows 12 and 27."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.clients import Directory, connect
from adsum.events.exporting import Span, export
from adsum.events.streams import EVENTS, read_epoch
from tests.cli.programs import Adsum, Running
from tests.daemons import Service, adsumd
from tests.faults.logs import become_another_log, words
from tests.making import key
from tests.projector.test_daemon import connected
from tests.servers import Server
from tests.waiting import until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A nats-server that stays while daemons come and go."""
    server = await Server(tmp_path / "server").start()
    yield server
    await server.stop()


def told(directory: Directory) -> dict[str, tuple[str, int]]:
    """id -> (epoch, revision) of everybody shown."""
    return {instance.id: (instance.epoch, instance.revision) for instance in directory.instances()}


async def live_with(directories: Iterable[Directory], wanted: set[str], epoch: str = "", seconds: float = 40) -> None:
    """Each shows just these, all of them told in the log of `epoch` (if given), and marks prove it."""

    def holds(directory: Directory, seen: dict[str, tuple[str, int]]) -> bool:
        told_in = {one for one, _ in seen.values()}
        return seen.keys() == wanted and directory.state == "live" and (not epoch or told_in == {epoch})

    async def one(directory: Directory) -> None:
        clock = asyncio.get_running_loop().time
        since = math.inf

        def proven(seen: dict[str, tuple[str, int]]) -> bool:
            nonlocal since
            since = min(since, clock()) if holds(directory, seen) else math.inf
            return directory._census.proven_at > since

        await until(lambda: told(directory), proven, seconds)

    await asyncio.gather(*map(one, directories))


@pytest.mark.parametrize("renamed", [pytest.param(False, id="same-epoch", marks=pytest.mark.long), True])
async def test_row_12_an_older_backup_is_put_back(tmp_path: Path, server: Server, renamed: bool) -> None:
    """The broker's whole store goes back to an older state, revisions and (where the log had become another one since)
    epoch with it: once a catalog follows that log, every cache shows what it says and is live, whatever it knew."""
    store, backup = server.folder / "store", tmp_path / "backup"
    async with AsyncExitStack() as stack:
        async with adsumd(tmp_path / "before", "--nats", server.url):
            bus = await connected(server.url)
            stack.push_async_callback(bus.close)
            for id in ("a", "b"):
                await Service(bus, key(id), heartbeat=100, ttl=300).register()
            registry = await stack.enter_async_context(connect(server.url, ping=0.5))
            asked = (registry.directory("orders"), registry.directory(), registry.directory("orders", "payments"))
            caches = [await stack.enter_async_context(directory) for directory in asked]
            await until(lambda: {len(cache) for cache in caches}, {2}.__eq__)
        await server.kill()
        shutil.copytree(store, backup)
        await server.start()
        await bus.ready(10)
        if renamed:
            await become_another_log(bus, await words(bus))
        async with adsumd(tmp_path / "since", "--nats", server.url):
            for id in ("a", "a", "a", "c"):
                await Service(bus, key(id), heartbeat=100, ttl=300).register()
            await until(lambda: {len(cache) for cache in caches}, {3}.__eq__, seconds=30)
            newest = told(caches[0])["a"]
        await server.kill()
        shutil.rmtree(store)
        backup.rename(store)
        await server.start()
        await bus.ready(10)
        async with adsumd(tmp_path / "again", "--nats", server.url):
            await live_with(caches, {"a", "b"})
            for cache in caches:
                epoch, revision = told(cache)["a"]
                assert revision < newest[1]
                assert (epoch < newest[0]) == renamed


SHORT = ("--port", "1", "--no-wait", "--heartbeat", "0.5s", "--ttl", "2s", "--", "sleep", "600")


async def test_row_27_a_log_is_imported_while_services_and_caches_live(tmp_path: Path, server: Server) -> None:
    """Every live service is visible again in the new epoch without a restart; nobody stops for what the other log says
    of its id (another process's life, a goodbye, nothing at all); who is dead goes; every cache follows to lower
    revisions."""
    command = Adsum(server.url)
    programs: list[Running] = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(command.stop)
        bus = await connected(server.url)
        stack.push_async_callback(bus.close)
        registry = await stack.enter_async_context(connect(server.url))
        async with adsumd(tmp_path / "before", "--nats", server.url):
            me = await stack.enter_async_context(registry.register("orders", id="me", port=1, heartbeat=0.5, ttl=2))
            for id in ("o-1", "o-2", "dead"):  # earlier processes with the ids of later ones, and one that goes
                service = Service(bus, key(id), heartbeat=0.5, ttl=2)
                await service.register()
                if id == "o-2":
                    await service.deregister()
            backup = str(tmp_path / "backup.jsonl.gz")
            await export(bus, backup, Span(), lambda _: None)
            await service.deregister()
            for name, id in (("orders", "o-1"), ("orders", "o-2"), ("payments", "p-1")):
                programs.append(await command.start("register", name, "--id", id, *SHORT))
            for weight in range(30, 0, -1):  # so that the log that comes has lower revisions, whatever is said in it
                await me.update(weight=weight)
            await me.update(weight=3)
            orders = await stack.enter_async_context(registry.directory("orders"))
            everything = await stack.enter_async_context(registry.directory())
            await live_with([orders], {"me", "o-1", "o-2"})
            await live_with([everything], {"me", "o-1", "o-2", "p-1"})
            before = told(everything)
            lives = {instance.id: instance.term for instance in everything.instances()}
        await bus._js.delete_stream(EVENTS)
        assert (await command("import", backup)).code == 0
        epoch = await read_epoch(bus)
        async with adsumd(tmp_path / "again", "--nats", server.url):
            await live_with([everything], {"me", "o-1", "o-2", "p-1"}, epoch)
            await live_with([orders], {"me", "o-1", "o-2"}, epoch)
            after = told(everything)
            assert all(after[id] > before[id] for id in before)
            assert any(after[id][1] < before[id][1] for id in before), (before, after)
            assert all(instance.term != lives[instance.id] for instance in everything.instances())
            assert me.state == "registered"
            assert [program.process.returncode for program in programs] == [None] * 3
            assert not [line for program in programs for line in program.err if "superseded" in line]
            weights = {instance.id: instance.weight for instance in everything.instances()}
            assert weights["me"] == 3
