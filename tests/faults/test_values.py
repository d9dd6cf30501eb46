"""No value makes an entry vanish for a reader that does not know it: row 22."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from adsum.clients import connect
from adsum.clients.registry import Registry
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.description import Endpoint
from adsum.events.errors import BrokerUnavailable, InvalidValue
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, HealthChanged
from adsum.events.streams import EVENTS, TOPOLOGY, read_epoch
from adsum.projector.embedded import EmbeddedBroker
from tests.cli.programs import Adsum
from tests.clients.announcer import Announcer, instance
from tests.daemons import Service, adsumd
from tests.making import key, registered
from tests.projector.test_daemon import FREE, connected
from tests.waiting import until

BAD: list[tuple[str, dict[str, Any]]] = [
    ("My Service", {}),
    ("orders.eu", {}),
    ("", {}),
    ("orders", {"id": "A_1"}),
    ("orders", {"id": "x" * 64}),
    ("orders", {"capabilities": ["pay now"]}),
    ("orders", {"capabilities": ["pay", "pay\0"]}),
    ("orders", {"metadata": {"": "x"}}),
    ("orders", {"metadata": {"k": "a\0b"}}),
    ("orders", {"metadata": {"k": "x" * 5000}}),
    ("orders", {"zone": "\ud800"}),
    ("orders", {"weight": float("nan")}),
    ("orders", {"port": 70000}),
    ("orders", {"protocol": "HTTP/2"}),
    ("orders", {"host": "a b"}),
    ("orders", {"heartbeat": 10, "ttl": 5}),
]


@pytest.mark.parametrize(("service", "said"), BAD, ids=[f"{service!r}-{said!r}"[:40] for service, said in BAD])
async def test_row_22_what_a_reader_could_not_take_is_refused_where_it_is_written(
    nats: EmbeddedBroker, broker: Broker, service: str, said: dict[str, Any]
) -> None:
    """A name or value that breaks a rule is refused with an error that names it, before anything is said; later
    changes are held to the same rules."""
    async with connect(nats.url) as registry:
        with pytest.raises(InvalidValue):
            refused(registry, service, said)
        async with registry.register("fine", port=1) as me:
            before = await broker.stream_info(EVENTS)
            changes = {name: value for name, value in said.items() if name not in ("id", "port", "host", "protocol")}
            if changes:
                with pytest.raises(InvalidValue):
                    await me.update(**changes)
            after = await broker.stream_info(EVENTS)
            assert before is not None
            assert after is not None
            assert after.state.last_seq == before.state.last_seq == 1


def refused(registry: Registry, service: str, said: dict[str, Any]) -> None:
    registry.register(service, **{"port": 1, **said})


def with_more(message: Any, **more: object) -> bytes:
    """The message as a later version would write it: with fields that nobody knows yet."""
    return msgspec.json.encode(msgspec.json.decode(encode(message)) | {"since-v9": {"a": [1, None]}} | more)


@pytest.mark.parametrize("dsn", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
async def test_row_22_what_a_later_version_says_is_kept_by_the_readers_of_today(
    tmp_path: Path, catalog: tuple[str, ...]
) -> None:
    """Unknown fields, an unknown kind of author, of event, of capability and of protocol: the instance is folded, told
    and shown with all that is known of it, its capabilities as they were said; what comes after is processed."""
    async with adsumd(tmp_path / "data", *FREE, *catalog) as daemon:
        bus = await connected(daemon.url)
        said = registered()
        description = msgspec.json.decode(encode(said))["instance"]
        description |= {"capabilities": ["pay", "π/v2 now", "x" * 200], "shard": 7}
        description["endpoints"] = [description["endpoints"][0] | {"protocol": "QUIC v9", "path": "/"}]
        description["metadata"] = {"ключ": "значение"}
        subject, by = subjects.event(key("new")), Author("autoscaler", "v9")
        await bus.store(EVENTS, subject, with_more(said, instance=description, by={"kind": "autoscaler", "x": 1}), {})
        await bus.store(EVENTS, subject, with_more(said, type="weighed", id=new_id()), {})
        sick = HealthChanged(id=new_id(), term=said.term, by=by, health="warning", reason="as v9 says")
        await bus.store(EVENTS, subject, with_more(sick), {})
        await Service(bus, key("old"), heartbeat=100, ttl=300).register()
        async with connect(daemon.url) as registry, registry.directory("orders") as orders:
            await until(lambda: {one.id for one in orders.instances()}, {"new", "old"}.__eq__)
            await until(lambda: [one.health for one in orders.instances() if one.id == "new"], ["warning"].__eq__)
            shown = orders.get("orders", "new")
            assert shown is not None
            assert shown.capabilities == ("pay", "π/v2 now", "x" * 200)
            assert shown.endpoint == Endpoint(host="127.0.0.1", port=8080, protocol="QUIC v9")
            assert (shown.metadata, shown.reason) == ({"ключ": "значение"}, "as v9 says")
            async with registry.directory(capability="pay") as payers:
                assert [one.id for one in payers.instances()] == ["new"]
        listed = await Adsum(daemon.url)("instances", "orders", "--json")
        assert [one["id"] for one in listed.json] == ["new", "old"]
        await bus.close()


async def test_row_22_a_later_projector_is_understood_by_the_caches_of_today(
    nats: EmbeddedBroker, broker: Broker
) -> None:
    """States, tombstones and marks with unknown fields, read from the snapshot or heard: shown, and proven."""
    later = Announcer(broker, await read_epoch(broker))
    async with connect(nats.url) as registry:
        for id in ("a", "b"):
            told = instance("orders", id, len(later.present) + 1, later.epoch, capabilities=("π/v2",))
            await broker.store(TOPOLOGY, subjects.topology(told.key), with_more(told), {})
            later.note(told)
        async with registry.directory("orders") as orders, later.marking(with_more):
            told = instance("orders", "c", 3, later.epoch, capabilities=("π/v2",))
            await broker.store(TOPOLOGY, subjects.topology(told.key), with_more(told), {})
            later.note(told)
            await until(lambda: {one.id for one in orders.instances()}, {"a", "b", "c"}.__eq__)
            assert {one.capabilities for one in orders.instances()} == {("π/v2",)}
            await later.end("orders", "a", 4)
            await until(lambda: {one.id for one in orders.instances()}, {"b", "c"}.__eq__)
            await until(lambda: orders.age, lambda age: age < 0.2)
            assert orders.state == "live"


async def test_an_address_that_means_nothing_to_others_is_told_and_ends_nobody(
    broker: Broker, nats: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that was not given is where the broker sees the process. At a link-local address the service runs on all
    the same, is told what to do, and registers once it is seen elsewhere."""
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Broker, "local_host", "fe80::1%eth0")
        async with connect(nats.url) as registry, registry.register("orders", port=8080, wait=0) as me:
            with pytest.raises(BrokerUnavailable, match=r"no use to others: host 'fe80::1%eth0'"):
                await me.registered(1)
            elsewhere.undo()
            await me.registered(20)
            assert me.description.endpoints[0].host == "127.0.0.1"
