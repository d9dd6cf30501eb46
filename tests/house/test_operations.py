"""What docs/operations.md promises: its SQL runs, its commands and units are known, its outages look as told."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import click
import pytest

from adsum.clients import connect
from adsum.clients.cli.app import cli
from adsum.clients.errors import NotLoaded
from adsum.events.config import check_config
from adsum.projector.databases import open_catalog
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.main import _parser
from tests.cli.programs import Adsum, free_port
from tests.daemons import adsumd
from tests.databases import PostgresServer, postgres_server
from tests.house.tree import ROOT
from tests.servers import Server
from tests.waiting import until

__all__ = ["postgres_server"]


def page() -> str:
    """The text of the page."""
    return (ROOT / "docs" / "operations.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)


def known_adsum(arguments: list[str]) -> None:
    """Whether the command takes these arguments."""
    name, *rest = arguments
    with click.Context(cli) as context:
        command = cli.get_command(context, name)
        assert command is not None, f"adsum has no command {name}"
        command.make_context(name, list(rest), parent=context)


# ---- what is printed is known


def test_the_configurations_are_read() -> None:
    client, daemon = (check_config(tomllib.loads(block)) for block in blocks("toml"))
    assert client.nats is not None
    assert daemon.nats is not None
    assert (client.nats.user, daemon.nats.user) == ("orders", "adsumd")
    assert daemon.dsn is not None
    assert open_catalog(daemon.dsn).shared


def test_the_units_start_what_there_is() -> None:
    started = []
    for block in blocks("ini"):
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(block)
        program, *arguments = shlex.split(unit["Service"]["ExecStart"])
        assert program.startswith("/usr/local/lib/adsum/bin/")
        if program.endswith("/adsumd"):
            given = _parser().parse_args(arguments)
            assert (given.data, given.config) == ("/var/lib/adsum", "/etc/adsum/adsumd.toml")
        else:
            assert unit["Service"]["KillMode"] == "mixed"
            known_adsum(arguments)
        started.append(Path(program).name)
    assert started == ["adsumd", "adsum"]


def test_the_commands_are_known() -> None:
    lines = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    commands = [line[1:] for line in lines if line[0] == "adsum"]
    assert len(commands) == 9
    for arguments in commands:
        known_adsum(arguments)
    [install] = [line for line in lines if "install" in line]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"\w+", install[-1])) <= set(extras)


def test_the_page_is_linked_and_its_links_lead_somewhere() -> None:
    assert "](docs/operations.md)" in (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", page()):
        assert (ROOT / "docs" / path).exists()


# ---- PostgreSQL


@pytest.fixture
async def dsn(postgres_server: PostgresServer) -> AsyncIterator[str]:
    """The DSN of the role and the database that the page's SQL makes."""
    root = await asyncpg.connect(postgres_server.dsn())
    for statement in blocks("sql")[0].split(";\n"):
        if statement:
            await root.execute(statement)
    yield postgres_server.dsn("adsum").replace("postgres:@", "adsum:change-me@")
    await root.execute("DROP DATABASE adsum WITH (FORCE)")
    await root.execute("DROP ROLE adsum")
    await root.close()


async def test_the_role_is_enough_and_every_table_is_told(tmp_path: Path, nats: EmbeddedBroker, dsn: str) -> None:
    options = ("--nats", nats.url, "--catalog", dsn)
    async with (
        adsumd(tmp_path / "one", *options),
        adsumd(tmp_path / "two", *options),
        connect(nats.url) as registry,
        registry.directory("orders") as orders,
        registry.register("orders", id="o-1", host="127.0.0.1", port=8080),
    ):
        await until(lambda: orders.get("orders", "o-1"))
        db = await asyncpg.connect(dsn)
        assert await db.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
        assert await db.fetchval("SELECT instance FROM instances") == "o-1"
        tables = {row[0] for row in await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
        section = page().split("## PostgreSQL")[1].split("## ")[0]
        first_cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        assert tables == {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
        await db.close()


@pytest.mark.long  # tests/faults/test_operability.py has a fast one
async def test_the_database_is_down(tmp_path: Path, nats: EmbeddedBroker, postgres_server: PostgresServer) -> None:
    database = await postgres_server.clone()
    adsum = Adsum(nats.url)
    options = ("--nats", nats.url, "--catalog", postgres_server.dsn(database))
    async with adsumd(tmp_path / "data", *options) as daemon, connect(nats.url) as registry:
        async with registry.register("early", id="e-1", port=1), registry.directory("early") as early:
            await until(lambda: early.get("early", "e-1"))  # it leads and has taken up the catalog
        postgres_server.crash()
        try:
            async with registry.register("orders", id="o-1", port=8080) as me:
                assert me.state == "registered"
                await until(lambda: "stepping down: the catalog does not take" in daemon.stderr, seconds=30)
                status = await adsum("status")
                assert (status.code, "no adsumd leads" in status.out) == (1, True)
                async with adsumd(tmp_path / "late", *options, ready=False) as late:
                    assert await late.ended() == 1
                assert (await adsum("log", "--json")).lines[0]["type"] == "registered"
                postgres_server.start()
                directory = registry.directory("orders")
                async with directory:
                    await until(lambda: directory.get("orders", "o-1"), seconds=30)
                    await until(lambda: directory.state, lambda state: state == "live")
                await until(lambda: adsum("status"), lambda status: status.code == 0, seconds=30)
        finally:
            postgres_server.start()
    await adsum.stop()


# ---- daemon and broker


async def test_the_daemon_is_down(tmp_path: Path, nats: EmbeddedBroker) -> None:
    adsum = Adsum(nats.url)
    async with connect(nats.url) as registry, registry.directory() as everybody:
        async with adsumd(tmp_path / "data", "--nats", nats.url), registry.register("orders", id="o-1", port=1, ttl=60):
            await until(lambda: everybody.state, lambda state: state == "live")
            await until(lambda: everybody.get("orders", "o-1"))
            watching = await adsum.start("watch")
            await watching.prints("o-1")
        async with registry.register("orders", id="o-2", port=2, ttl=60) as late:
            assert late.state == "registered"
            await until(lambda: everybody.state, lambda state: state == "stale")
            assert everybody.get("orders", "o-2") is None
            await watching.says("nothing proves any more that this is complete", 20)
            status = await adsum("status")
            assert (status.code, "no adsumd leads" in status.out) == (1, True)
            assert (await adsum("drain", "orders", "o-2")).code == 0
            assert [event["id"] for event in (await adsum("log", "--json")).lines][-1] == "o-2"
            async with adsumd(tmp_path / "data", "--nats", nats.url):
                told = await until(lambda: everybody.get("orders", "o-2"), seconds=15)
                assert told.mode == "draining"
                await until(lambda: everybody.state, lambda state: state == "live")
                await until(lambda: late.standing.mode, lambda mode: mode == "draining")
    await adsum.stop()


async def test_the_broker_is_down(tmp_path: Path) -> None:
    server = await Server(tmp_path / "server").start()
    adsum = Adsum(server.url)
    async with adsumd(tmp_path / "data", "--nats", server.url) as daemon, connect(server.url) as registry:
        async with (
            registry.register("orders", id="o-1", port=1, heartbeat=0.2, ttl=0.6) as me,
            registry.directory() as everybody,
        ):
            await until(lambda: everybody.get("orders", "o-1"))
            await server.kill()
            await until(lambda: everybody.state, lambda state: state == "stale")
            assert everybody.get("orders", "o-1")
            assert me.state == "registered"
            status = await adsum("status", "--timeout", "1s")
            assert (status.code, "no broker at" in status.err) == (3, True)
            await until(lambda: "the connection was lost" in daemon.stderr)
            async with (
                registry.directory(wait=0.1) as unknown,
                registry.register("orders", id="o-2", port=2, wait=0.1) as late,
                adsumd(tmp_path / "late", "--nats", server.url, ready=False) as refused,
            ):
                with pytest.raises(NotLoaded):
                    unknown.instances()
                assert late.state == "registering"
                assert await refused.ended() == 1
                await server.start()
                await until(lambda: unknown.state, lambda state: state == "live", seconds=20)
                await until(lambda: unknown.get("orders", "o-2"))
                assert unknown.get("orders", "o-1")
        verdicts = {event["type"] for event in (await adsum("log", "--json")).lines} - {"registered", "deregistered"}
        assert "expired" not in verdicts  # the outage was longer than its TTLs
    await adsum.stop()
    await server.stop()


# ---- what lies in the data folder, and what a backup is


async def test_the_log_is_all_that_a_backup_needs(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    async with adsumd(before, "--listen", "127.0.0.1:0") as daemon, connect(daemon.url) as registry:
        async with registry.register("orders", id="o-1", port=1), registry.directory() as everybody:
            await until(lambda: everybody.get("orders", "o-1"))
        log = await Adsum(daemon.url).events()
    assert {"lock", "catalog.db", "daemon-id", "nats"} <= {path.name for path in before.iterdir()}
    assert {"store", "nats-server.log"} <= {path.name for path in (before / "nats").iterdir()}
    shutil.copytree(before / "nats" / "store", after / "nats" / "store")
    async with adsumd(after, "--listen", "127.0.0.1:0") as daemon:
        assert daemon.line.endswith("revision=2")  # folded anew from the log
        assert await Adsum(daemon.url).events() == log


# ---- drain, stop, deploy


async def test_a_drained_stop_and_the_same_id_twice(tmp_path: Path) -> None:
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as daemon:
        adsum = Adsum(daemon.url)
        earlier = await adsum.start("register", "orders", "--port", str(free_port()), "--id", "o-1")
        await earlier.says("registered default/orders/o-1")
        drain, look, remove = [shlex.split(line)[1:] for line in blocks("sh")[1].splitlines()]
        assert (await adsum(*drain)).code == 0
        async with connect(daemon.url) as registry, registry.directory("orders") as orders:
            await until(lambda: [one.mode for one in orders.instances()], lambda modes: modes == ["draining"])
            assert "draining" in (await adsum(*look)).out

            later = await adsum.start("register", "orders", "--port", str(free_port()), "--id", "o-1")
            await later.says("registered default/orders/o-1")
            await earlier.says("superseded by a later registration of the same id")
            await until(lambda: [one.mode for one in orders.instances()], lambda modes: modes == ["serving"])
            assert (await adsum(*remove)).code == 0
            await later.says("removed by operator")
            await until(lambda: not orders.instances())
        assert [event["type"] for event in await adsum.events()][-1] == "deregistered"
        await adsum.stop()
