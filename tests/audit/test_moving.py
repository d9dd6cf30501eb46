"""The log moves to another broker while services and caches live; a new catalog says the same of the past."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.clients import connect
from adsum.events.streams import read_epoch
from tests.audit.pages import documented
from tests.audit.rows import rows
from tests.cli.programs import Adsum
from tests.daemons import Service, adsumd
from tests.faults.owners import one, owner
from tests.faults.test_log_changed import Catalogs
from tests.faults.test_other_log import live_with
from tests.making import key
from tests.projector.test_daemon import connected, refused
from tests.servers import Server

EVENTS_ROWS = "SELECT sequence, event_id, time, payload, hash FROM events WHERE sequence <= {} ORDER BY sequence"
HISTORY_ROWS = "SELECT * FROM history WHERE ended_revision <= {} ORDER BY began_revision"


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
async def test_moving_to_another_broker(tmp_path: Path, catalogs: Catalogs) -> None:
    """Every service is visible again in the new epoch without a restart and every cache follows, whatever it knew; the
    old catalog is refused; the new one has the same events, versions, times and hashes."""
    old, new = await catalogs("old"), await catalogs("new")
    export, bring = documented("Moving to another broker", tmp_path)
    async with AsyncExitStack() as stack:
        server = await Server(tmp_path / "server").start()
        stack.push_async_callback(server.stop)
        adsum = Adsum(server.url)
        stack.push_async_callback(adsum.stop)
        registry = await stack.enter_async_context(connect(server.url, ping=0.25))
        async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", old):
            process = await stack.enter_async_context(owner(server.url, one("o-1"), one("o-2")))
            term = await process.reaches("o-1", "registered")
            await process.reaches("o-2", "registered")
            bus = await connected(server.url)
            gone = Service(bus, key("gone"), heartbeat=100, ttl=300)
            await gone.register()
            await gone.deregister()
            cache = await stack.enter_async_context(registry.directory("orders"))
            await live_with([cache], {"o-1", "o-2"})
            epoch = await read_epoch(bus)
        assert (await adsum(*export)).code == 0
        await bus.close()
        await server.kill()

        moved = Server(tmp_path / "moved")
        moved.port = server.port
        stack.push_async_callback((await moved.start()).stop)
        result = await adsum(*bring, "--json")
        assert result.code == 0, result.err
        last = result.json["last"]
        line = await refused(tmp_path / "data", "--nats", moved.url, "--catalog", old)
        assert f"the log is of epoch {result.json['epoch']}, the catalog was folded from epoch {epoch}" in line
        assert "with an empty database (--catalog)" in line
        async with adsumd(tmp_path / "data", "--nats", moved.url, "--catalog", new):
            await live_with([cache], {"o-1", "o-2"}, result.json["epoch"])
            assert process.alive
            assert {state for state, _ in process.states("o-1")} <= {"registering", "registered"}
            assert process.states("o-1")[-1][1] != term
        assert await rows(new, EVENTS_ROWS.format(last)) == await rows(old, EVENTS_ROWS.format(last))
        assert await rows(new, HISTORY_ROWS.format(last)) == await rows(old, HISTORY_ROWS.format(last))
        assert len(await rows(new, EVENTS_ROWS.format(last))) == last == 4
        assert len(await rows(new, HISTORY_ROWS.format(last))) == 1


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
async def test_backup_and_restore(tmp_path: Path, catalogs: Catalogs) -> None:
    """The backup is taken while all runs; the broker's disk is lost, with what was said since; the backup is put back
    on the broker while services and caches live, and everybody agrees with the log."""
    old, new = await catalogs("old"), await catalogs("new")
    export, bring = documented("Backup and restore", tmp_path)
    async with AsyncExitStack() as stack:
        server = await Server(tmp_path / "server").start()
        stack.push_async_callback(server.stop)
        adsum = Adsum(server.url)
        registry = await stack.enter_async_context(connect(server.url, ping=0.25))
        async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", old):
            process = await stack.enter_async_context(owner(server.url, one("o-1")))
            await process.reaches("o-1", "registered")
            bus = await connected(server.url)
            for id in ("kept", "left"):
                await Service(bus, key(id), heartbeat=100, ttl=300).register()
            cache = await stack.enter_async_context(registry.directory("orders"))
            await live_with([cache], {"o-1", "kept", "left"})
            assert (await adsum(*export)).code == 0
            left = Service(bus, key("left"), heartbeat=100, ttl=300)
            await left.register()
            await left.deregister()
            await Service(bus, key("late"), heartbeat=100, ttl=300).register()
            await live_with([cache], {"o-1", "kept", "late"})
        await bus.close()
        await server.kill()
        shutil.rmtree(server.folder / "store")
        await server.start()
        result = await adsum(*bring, "--json")
        assert result.code == 0, result.err
        assert "the catalog was folded from epoch" in await refused(
            tmp_path / "data", "--nats", server.url, "--catalog", old
        )
        async with adsumd(tmp_path / "data", "--nats", server.url, "--catalog", new):
            await live_with([cache], {"o-1", "kept", "left"}, result.json["epoch"])
            assert process.alive
        assert await rows(new, EVENTS_ROWS.format(3)) == await rows(old, EVENTS_ROWS.format(3))
