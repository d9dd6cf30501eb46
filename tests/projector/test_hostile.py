"""Whatever single message is put on the bus: what comes after it is processed, and nothing stays invented."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from adsum.clients import connect
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.ids import new_id
from adsum.events.names import Key
from adsum.events.signals import Departed, Heartbeat, Instance
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, read_epoch
from adsum.projector.record import instance_of
from tests.daemons import Service, adsumd, topology
from tests.databases import PostgresServer
from tests.making import key, record, registered
from tests.projector.test_daemon import FREE, connected
from tests.waiting import until

GHOST = key("ghost")


async def ghost(bus: Broker, **changes: object) -> bytes:
    """A topology message about somebody who never was."""
    invented = instance_of(record(GHOST, revision=1), await read_epoch(bus))
    return encode(msgspec.structs.replace(invented, **changes))


async def hostile(bus: Broker) -> dict[str, tuple[str, str, bytes]]:
    """(stream, subject, data) of one hostile message of each kind."""
    large = encode(registered())[:-1] + b',"padding":"' + b"x" * 900_000 + b'"}'
    long_term = f"adsum.v1.default.beat.orders.a.{'t' * 3800}"
    place = subjects.topology(GHOST)
    return {
        "tick-garbage": (BEATS, subjects.TICK, b"no tick"),
        "tick-empty": (BEATS, subjects.TICK, b""),
        "tick-far": (BEATS, subjects.TICK, b'{"leader":"x","number":' + b"9" * 4300 + b"}"),
        "event-large": (EVENTS, subjects.event(GHOST), large),
        "beat-long-term": (BEATS, long_term, encode(Heartbeat(1))),
        "beat-foreign-term": (BEATS, subjects.beat(GHOST, new_id()), encode(Heartbeat((1 << 63) - 1))),
        "topology-ghost": (TOPOLOGY, place, await ghost(bus)),
        "topology-garbage": (TOPOLOGY, place, b"no topology"),
        "topology-beyond-the-log": (TOPOLOGY, place, await ghost(bus, revision=1 << 60)),
        "topology-of-another": (TOPOLOGY, place, await ghost(bus, id="other")),
    }


TOPOLOGY_KINDS = ["topology-ghost", "topology-garbage", "topology-beyond-the-log", "topology-of-another"]


@pytest.fixture(params=["sqlite", "postgres"])
async def catalog(request: pytest.FixtureRequest) -> AsyncIterator[list[str]]:
    """The daemon's options for a catalog."""
    if request.param == "sqlite":
        yield []
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield ["--catalog", server.dsn(await server.clone())]


async def visible(bus: Broker, wanted: Key) -> None:
    """A registration is announced."""
    await Service(bus, wanted, heartbeat=100, ttl=300).register()
    await until(lambda: topology(bus, wanted), seconds=15)


async def test_no_message_stops_the_registry(tmp_path: Path, catalog: list[str]) -> None:
    """All of them at once: the registry goes on, after a restart too, and a new directory sees who is there alone."""
    async with adsumd(tmp_path / "data", *FREE, *catalog) as daemon:
        bus = await connected(daemon.url)
        await visible(bus, key("before"))
        kinds = await hostile(bus)
        for kind, (stream, subject, data) in kinds.items():
            await bus.store(stream, subject, data, {})
            await visible(bus, key(f"after-{kind}"))
        await bus.close()
    async with adsumd(tmp_path / "data", *FREE, *catalog) as daemon:
        bus = await connected(daemon.url)
        await visible(bus, key("again"))
        async with connect(daemon.url) as registry, registry.directory("orders") as orders:
            wanted = {"before", "again", *(f"after-{kind}" for kind in kinds)}
            await until(lambda: {one.id for one in orders.instances()}, lambda ids: ids == wanted, seconds=15)
            await until(lambda: orders.state, lambda state: state == "live")
        await bus.close()


@pytest.mark.parametrize("kind", TOPOLOGY_KINDS)
async def test_what_the_projector_did_not_write_is_corrected_while_it_runs(tmp_path: Path, kind: str) -> None:
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        bus = await connected(daemon.url)
        await visible(bus, key("before"))
        async with connect(daemon.url) as registry, registry.directory("orders") as orders:
            stream, subject, data = (await hostile(bus))[kind]
            await bus.store(stream, subject, data, {})
            gone = await until(lambda: topology(bus, GHOST), lambda seen: isinstance(seen, Departed))
            assert gone is not None
            await until(lambda: [one.id for one in orders.instances()], lambda ids: ids == ["before"], seconds=15)
        await bus.close()


async def test_a_state_that_was_overwritten_is_told_again(tmp_path: Path) -> None:
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        bus = await connected(daemon.url)
        await visible(bus, key("a"))
        before = await topology(bus, key("a"))
        await bus.store(TOPOLOGY, subjects.topology(key("a")), b"overwritten", {})
        assert isinstance(before, Instance)

        async def told() -> bytes:
            raw = await bus.last_message(TOPOLOGY, subjects.topology(key("a")))
            return (raw.data or b"") if raw else b""

        await until(told, lambda data: data == encode(before))
        await bus.close()
