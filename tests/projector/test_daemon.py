"""adsumd as a program: it starts, it says so, it ends cleanly, and refuses with one clear line."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import psutil
import pytest

from adsum.events.broker import Broker
from adsum.events.settings import BrokerSettings
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, ensure_streams
from adsum.projector.embedded import EmbeddedBroker
from tests.daemons import AdsumDaemon, Service, adsumd, start_adsumd, topology
from tests.making import key
from tests.waiting import until

FREE = ("--listen", "127.0.0.1:0")


async def refused(folder: Path, *arguments: str) -> str:
    """The one line on stderr with which a daemon that must not start says so."""
    daemon = await start_adsumd(folder, arguments)
    try:
        assert await daemon.ended(within=25) == 1
    finally:
        await daemon.stop()
    lines = [line for line in daemon.stderr.splitlines() if line.startswith("adsumd: ")]
    assert len(lines) == 1, daemon.stderr
    assert "Traceback" not in daemon.stderr
    return lines[0]


async def connected(url: str) -> Broker:
    """A connection to a daemon's broker."""
    broker = Broker.open(BrokerSettings(url=url), "test")
    await broker.ready(10)
    return broker


def children(daemon: AdsumDaemon) -> list[psutil.Process]:
    """The processes a daemon started."""
    return psutil.Process(daemon.process.pid).children()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
async def test_one_line_when_ready_and_a_clean_end(tmp_path: Path, stop: signal.Signals) -> None:
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        assert "nats=nats://127.0.0.1:" in daemon.line
        assert "catalog=sqlite:///" in daemon.line
        assert daemon.line.endswith("revision=0")
        [child] = children(daemon)
        daemon.signal(stop)
        assert await daemon.ended() == 0
        assert not child.is_running()
        assert daemon.process.stdout is not None
        assert await daemon.process.stdout.read() == b""
    assert "Traceback" not in daemon.stderr


async def test_goes_on_where_it_was(tmp_path: Path) -> None:
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        broker = await connected(daemon.url)
        revision = await Service(broker, key()).register()
        await until(lambda: topology(broker, key()))
        await broker.close()
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        assert daemon.line.endswith(f"revision={revision}")


async def test_the_broker_never_outlives_a_killed_daemon(tmp_path: Path) -> None:
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        [child] = children(daemon)
        daemon.process.kill()
        await daemon.ended()
        await until(lambda: not child.is_running(), seconds=5)
    async with adsumd(tmp_path / "data", *FREE):
        pass


async def test_a_broker_that_dies_ends_the_daemon_with_a_reason(tmp_path: Path) -> None:
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        [child] = children(daemon)
        child.kill()
        assert await daemon.ended() == 1
        assert "adsumd: the embedded nats-server ended by itself" in daemon.stderr


async def test_two_daemons_on_one_folder(tmp_path: Path) -> None:
    async with adsumd(tmp_path / "data", *FREE) as first:
        line = await refused(tmp_path / "data", *FREE)
        assert "data" in line
        assert str(first.process.pid) in line
        assert first.process.returncode is None


async def test_two_daemons_on_one_folder_with_a_broker_and_databases_of_their_own(
    tmp_path: Path, nats: EmbeddedBroker
) -> None:
    """They would take each other's lease for their own."""
    common = ("--nats", nats.url, "--catalog")
    async with adsumd(tmp_path / "data", *common, f"sqlite:///{tmp_path / 'a.db'}"):
        assert "in use" in await refused(tmp_path / "data", *common, f"sqlite:///{tmp_path / 'b.db'}")


async def test_two_daemons_on_one_database(tmp_path: Path, nats: EmbeddedBroker) -> None:
    shared = ("--nats", nats.url, "--catalog", f"sqlite:///{tmp_path / 'one.db'}")
    async with adsumd(tmp_path / "first", *shared):
        assert "one.db" in await refused(tmp_path / "second", *shared)


async def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        line = await refused(tmp_path / "data", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert "address already in use" in line
    assert "--listen" in line


async def test_a_data_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert "--data" in await refused(tmp_path / "data", *FREE)


async def test_an_unreachable_broker(tmp_path: Path) -> None:
    assert "nats://127.0.0.1:1" in await refused(tmp_path / "data", "--nats", "nats://127.0.0.1:1")


async def test_an_unreachable_database(tmp_path: Path, nats: EmbeddedBroker) -> None:
    dsn = "postgresql://adsum:secret@127.0.0.1:1/adsum"
    line = await refused(tmp_path / "data", "--nats", nats.url, "--catalog", dsn)
    assert "127.0.0.1:1" in line
    assert "secret" not in line


async def test_streams_with_other_settings(tmp_path: Path, broker: Broker, nats: EmbeddedBroker) -> None:
    line = await refused(tmp_path / "data", "--nats", nats.url, "--replicas", "3")
    assert "num_replicas is 1, needed 3" in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--catalogue", "x"], "did you mean --catalog"),
        (["--listen", "nowhere"], "HOST:PORT"),
        (["--replicas", "2"], "1, 3 or 5"),
        (["--nats", "127.0.0.1:4222"], "nats://127.0.0.1:4222"),
        (["--catalog", "mysql://x"], "sqlite:///"),
        (["--config", "missing.toml"], "missing.toml"),
    ],
)
async def test_wrong_usage(tmp_path: Path, arguments: list[str], told: str) -> None:
    daemon = await start_adsumd(tmp_path / "data", arguments)
    assert await daemon.ended() == 2
    assert told in daemon.stderr
    assert len(daemon.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


async def test_another_log_is_refused(tmp_path: Path) -> None:
    """The catalog stands at an event that this log does not hold (fault 18)."""
    catalog = f"sqlite:///{tmp_path / 'catalog.db'}"
    async with adsumd(tmp_path / "one", *FREE, "--catalog", catalog) as daemon:
        broker = await connected(daemon.url)
        await Service(broker, key()).register()
        await until(lambda: topology(broker, key()))
        await broker.close()
    line = await refused(tmp_path / "two", *FREE, "--catalog", catalog)
    assert "epoch" in line
    assert "--catalog" in line


async def test_what_cannot_be_read_is_set_aside_and_the_log_goes_on(tmp_path: Path) -> None:
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        broker = await connected(daemon.url)
        await ensure_streams(broker)
        for payload in (b"no json", b'{"type":"unheard-of","id":"x"}', b"{}", b"\xff\x00"):
            await broker.store("ADSUM_EVENTS", "adsum.v1.default.event.orders.bad", payload, {})
        service = Service(broker, key())
        await service.register()
        await until(lambda: topology(broker, key()))
        assert "event 1 is set aside" in daemon.stderr
        await broker.close()


async def test_an_unknown_broker_without_jetstream(tmp_path: Path) -> None:
    """A reachable broker that cannot hold streams is refused with the broker's own words."""
    process = await asyncio.create_subprocess_exec(
        str(Path(__import__("sysconfig").get_path("scripts")) / "nats-server"),
        "-a",
        "127.0.0.1",
        "-p",
        "-1",
        "--ports_file_dir",
        str(tmp_path),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        [ports] = await until(lambda: list(tmp_path.glob("*.ports")))
        url = await until(lambda: ports.read_text().split('"')[3] if ports.stat().st_size else "")
        assert "JetStream" in await refused(tmp_path / "data", "--nats", url)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("stream", [BEATS, EVENTS, TOPOLOGY])
async def test_a_stream_that_is_deleted_ends_the_daemon_with_a_reason(tmp_path: Path, stream: str) -> None:
    """No trying again brings it back; a start does, and what it held of the living is told anew."""
    service_id = key()
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        broker = await connected(daemon.url)
        await Service(broker, service_id, heartbeat=100, ttl=300).register()
        await until(lambda: topology(broker, service_id))
        await broker._js.delete_stream(stream)
        assert await daemon.ended() == 1
        [line] = [line for line in daemon.stderr.splitlines() if line.startswith("adsumd: ")]
        assert stream in line
        assert "Traceback" not in daemon.stderr
        await broker.close()
    if stream == EVENTS:  # the log itself: never made anew behind the back of a catalog
        assert "epoch" in await refused(tmp_path / "data", *FREE)
        return
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        broker = await connected(daemon.url)
        await until(lambda: topology(broker, service_id))
        await broker.close()
