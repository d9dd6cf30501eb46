"""The official images of NATS and PostgreSQL: streams, catalog and the whole daemon work on them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import docker
import pytest
from testcontainers.core.container import DockerContainer

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.codec import decode_event
from adsum.events.log import last_word, say
from adsum.events.reader import StreamReader
from adsum.events.signals import Departed, Instance
from adsum.events.streams import EVENTS, ensure_streams
from adsum.projector.catalog import Checkpoint
from adsum.projector.databases import open_catalog
from adsum.projector.fold import fold_batch
from tests.daemons import Service, adsumd, topology
from tests.making import key, message, registered
from tests.waiting import until


@pytest.fixture(scope="module")
def nats_url(engine: docker.DockerClient) -> Iterator[str]:
    """A NATS of the official image, with JetStream."""
    with DockerContainer("nats:2.15-alpine").with_command("-js").with_exposed_ports(4222) as container:
        yield f"nats://{container.get_container_host_ip()}:{container.get_exposed_port(4222)}"


@pytest.fixture(scope="module")
def server(engine: docker.DockerClient) -> Iterator[str]:
    """A PostgreSQL of the official image: its DSN without the database."""
    container = DockerContainer("postgres:18-alpine").with_env("POSTGRES_PASSWORD", "secret").with_exposed_ports(5432)
    with container:
        host, port = container.get_container_host_ip(), container.get_exposed_port(5432)
        yield f"postgresql://postgres:secret@{host}:{port}"


@pytest.fixture
async def dsn(server: str) -> str:
    """A database of the test's own."""
    name = f"test_{secrets.token_hex(4)}"

    async def create() -> bool:
        try:
            connection = await asyncpg.connect(f"{server}/postgres")
        except (OSError, asyncpg.PostgresError):
            return False  # it starts, or starts again after its initialisation
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        return True

    await until(create, seconds=60)
    return f"{server}/{name}"


async def test_streams_log_and_reader(nats_url: str) -> None:
    broker = Broker.open(BrokerSettings(url=nats_url), "test")
    await broker.ready(30)
    assert await ensure_streams(broker) == await ensure_streams(broker)
    event = registered()
    sequence = await say(broker, key("streams"), event, 0)
    word = await last_word(broker, key("streams"))
    assert word is not None
    assert (word.sequence, word.event) == (sequence, event)
    async with StreamReader(broker, EVENTS, start=sequence) as reader:
        assert [decode_event(read.data) for read in await reader.batch()] == [event]
    await broker.close()


async def test_the_catalog(dsn: str) -> None:
    catalog = open_catalog(dsn)
    await catalog.open()
    beginning = await catalog.begin("epoch")
    batch = fold_batch({}, [message(registered(), 1)])
    assert await catalog.store(beginning, batch) == Checkpoint("epoch", 1, batch.last_id, batch.head)
    assert await catalog.records() == list(batch.changed.values())
    await catalog.close()


async def test_the_daemon_on_both(nats_url: str, dsn: str, tmp_path: Path) -> None:
    broker = Broker.open(BrokerSettings(url=nats_url), "test")
    await broker.ready(30)
    async with adsumd(tmp_path / "data", "--nats", nats_url, "--catalog", dsn) as daemon:
        assert "secret" not in daemon.line
        service = Service(broker, key("daemon"))
        async with service.beating():
            revision = await service.register()
            told = await until(lambda: topology(broker, service.key))
            assert (told.key, told.revision, told.term) == (service.key, revision, service.term)
            assert isinstance(told, Instance)
        gone = await until(lambda: topology(broker, service.key), lambda seen: isinstance(seen, Departed), seconds=20)
        assert gone is not None
        assert gone.reason == "expired"
    catalog = open_catalog(dsn)
    await catalog.open()
    assert (await catalog.checkpoint() or Checkpoint("", 0, "")).sequence == gone.revision
    await catalog.close()
    await broker.close()
