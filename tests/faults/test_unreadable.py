"""Rows 21 and 25: what cannot be read or stored is kept, and what comes after it is processed; nothing is invented."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from adsum.clients import connect
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_tick, encode
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered
from adsum.events.names import Key
from adsum.events.signals import Departed, Heartbeat, Instance
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, read_epoch
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.record import instance_of
from tests.daemons import Service, adsumd, topology
from tests.faults.catalogs import rows
from tests.faults.unreadable import GHOST, anything, bad_events, future_events
from tests.making import OWNER, key, record, registered
from tests.projector.test_daemon import FREE, connected
from tests.waiting import until


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


LONG = pytest.mark.long
TOPOLOGY_KINDS = [
    "topology-garbage",
    "topology-of-another",
    pytest.param("topology-ghost", marks=LONG),
    pytest.param("topology-beyond-the-log", marks=LONG),
]


async def visible(bus: Broker, wanted: Key) -> None:
    """A registration is announced."""
    await Service(bus, wanted, heartbeat=100, ttl=300).register()
    await until(lambda: topology(bus, wanted), seconds=15)


async def sent(bus: Broker, stream: str, messages: Iterable[tuple[str, bytes]]) -> dict[int, tuple[str, bytes]]:
    """Store these, many in flight; what stands at each sequence."""
    stored: dict[int, tuple[str, bytes]] = {}
    messages = list(messages)
    for first in range(0, len(messages), 100):
        part = messages[first : first + 100]
        futures = [await bus.store_later(stream, subject, data, {}) for subject, data in part]
        stored |= dict(zip(await asyncio.gather(*futures), part, strict=True))
    return stored


async def test_row_21_what_cannot_be_read_is_kept_counted_and_logged(tmp_path: Path, dsn: str) -> None:
    """Every message of the log is in the catalog once, as an event or raw with the reason; the rest is processed."""
    here, later = subjects.event(GHOST), key("later-version")
    async with adsumd(tmp_path / "data", *FREE, "--catalog", dsn) as daemon:
        bus = await connected(daemon.url)
        await visible(bus, key("before"))
        bad = await sent(bus, EVENTS, bad_events())
        good = await sent(bus, EVENTS, future_events(later))
        mixed = await sent(bus, EVENTS, [(here, data) for data in anything(300)])
        await visible(bus, key("after"))
        assert isinstance(await topology(bus, later), Instance)
        end = await rows(dsn, "SELECT max(sequence) FROM events")
        read = {sequence: bytes(data) for sequence, data in await rows(dsn, "SELECT sequence, payload FROM events")}
        aside = await rows(dsn, "SELECT sequence, subject, payload, reason FROM rejected")
        kept = {sequence: (subject, bytes(data)) for sequence, subject, data, _ in aside}
        assert read.keys() | kept.keys() == set(range(1, end[0][0] + 1))
        assert not read.keys() & kept.keys()
        assert bad.keys() <= kept.keys()
        assert good.keys() <= read.keys()
        for sequence, (subject, data) in (bad | good | mixed).items():
            assert kept.get(sequence, (subject, read.get(sequence))) == (subject, data)
        assert all(reason for *_, reason in aside)
        assert await until(lambda: told_aside(bus), lambda count: count == len(kept)) >= len(bad)
        assert daemon.stderr.count(" is set aside: ") == len(kept)
        await bus.close()


async def told_aside(bus: Broker) -> int:
    """How many messages the leader says that it set aside; `adsum status` shows it."""
    raw = await bus.last_message(BEATS, subjects.TICK)
    return decode_tick(raw.data or b"").rejected if raw is not None else 0


async def test_row_21_beats_ticks_and_topology_that_cannot_be_read(tmp_path: Path) -> None:
    """Whatever they hold: who beats lives, who does not goes, and the caches show just those who are there."""
    place, beat = subjects.topology(GHOST), subjects.beat(GHOST, new_id())
    async with adsumd(tmp_path / "data", *FREE) as daemon:
        bus = await connected(daemon.url)
        living, dead = Service(bus, key("living")), Service(bus, key("dead"))
        await living.register()
        await dead.register()
        async with living.beating(), connect(daemon.url) as registry, registry.directory("orders") as orders:
            for stream, subject in ((BEATS, beat), (TOPOLOGY, place), (BEATS, subjects.TICK)):
                await sent(bus, stream, [(subject, data) for data in anything(100)])
            await visible(bus, key("after"))
            await until(lambda: topology(bus, key("dead")), lambda seen: isinstance(seen, Departed), seconds=30)
            wanted = {"living", "after"}
            await until(lambda: {one.id for one in orders.instances()}, lambda ids: ids == wanted, seconds=20)
            await until(lambda: orders.state, lambda state: state == "live", seconds=20)
        assert "Traceback" not in daemon.stderr
        await bus.close()


async def test_row_25_what_the_database_refuses_does_not_block_the_log(tmp_path: Path, dsn: str) -> None:
    """In the middle of a batch: it alone is set aside, raw, with what the database said; all others are stored.

    An id of 201 characters is a readable event, and one that neither database takes.
    """
    data, catalog = tmp_path / "data", ("--catalog", dsn)
    async with adsumd(data, *FREE, *catalog) as daemon:
        bus = await connected(daemon.url)
        await visible(bus, key("before"))
        await bus.close()
    broker = await EmbeddedBroker.start(data, port=0)
    try:
        bus = await connected(broker.url)  # while no adsumd reads, so that all of these become one batch
        refused = [encode(Deregistered(id=f"{n}".zfill(201), term=new_id(), by=OWNER)) for n in (1, 2)]
        lives = [(subjects.event(key(f"n-{n}")), encode(registered())) for n in range(20)]
        messages = [
            *lives[:7],
            (subjects.event(key("n-3")), refused[0]),
            *lives[7:],
            (subjects.event(GHOST), refused[1]),
        ]
        stored = await sent(bus, EVENTS, messages)
        await bus.close()
    finally:
        await broker.stop()
    async with adsumd(data, *FREE, *catalog) as daemon:
        bus = await connected(daemon.url)
        await until(lambda: topology(bus, key("n-19")), seconds=15)
        aside = await rows(dsn, "SELECT sequence, payload, reason FROM rejected ORDER BY sequence")
        assert [bytes(data) for _, data, _ in aside] == refused
        assert all(reason.startswith("the catalog refuses it: ") for *_, reason in aside)
        read = {sequence for (sequence,) in await rows(dsn, "SELECT sequence FROM events")}
        assert read == {1, *stored} - {sequence for sequence, *_ in aside}
        assert isinstance(await topology(bus, key("n-3")), Instance)
        await visible(bus, key("after"))
        assert await until(lambda: told_aside(bus), lambda count: count == 2) == 2
        await bus.close()


async def test_row_21_no_single_message_stops_the_registry(tmp_path: Path, catalog: list[str]) -> None:
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
