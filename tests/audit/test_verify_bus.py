"""`adsum verify`: a state of the topology or of a cache that is not what the log says is found and named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.signals import Instance
from adsum.events.streams import TOPOLOGY
from adsum.events.tools import Look, Shown
from adsum.projector import settling
from adsum.projector.embedded import EmbeddedBroker
from tests.audit.verifying import told, verified
from tests.daemons import Service, topology
from tests.making import key
from tests.waiting import until


async def test_a_state_that_was_edited_is_found(nats: EmbeddedBroker, broker: Broker, tmp_path: Path) -> None:
    """Another address under the same revision: the announcer takes it for its own, the audit does not."""
    wanted = key("a")
    await Service(broker, wanted, heartbeat=100, ttl=300).register()
    async with told(nats, tmp_path):
        assert (await verified(broker)).differences == ()
        state = await topology(broker, wanted)
        assert isinstance(state, Instance)
        [endpoint] = state.endpoints
        forged = msgspec.structs.replace(state, endpoints=(msgspec.structs.replace(endpoint, port=666),))
        await broker.store(TOPOLOGY, subjects.topology(wanted), encode(forged), {})
        [found] = (await verified(broker)).differences
        assert (found.part, found.place, found.field) == ("topology", "default/orders/a", "endpoints")
        assert ("8080" in found.expected, "666" in found.found) == (True, True)


async def test_a_topology_that_nobody_keeps_up_is_found(
    nats: EmbeddedBroker, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States that are missing or behind, and somebody who is gone: once they had their time."""
    monkeypatch.setattr(settling, "SETTLED", 1.5)
    a, b, c = (Service(broker, key(id), heartbeat=100, ttl=300) for id in "abc")
    for service in (a, b):
        await service.register()
    async with told(nats, tmp_path):
        pass
    assert (await verified(broker)).differences == ()
    await a.deregister()
    [found] = (await verified(broker)).differences
    assert (found.part, found.place, found.field) == ("topology", "default/orders/a", "")
    assert "ended at revision 4 (deregistered)" in found.expected
    assert "is there, at revision 1" in found.found
    await a.register()
    [found] = (await verified(broker)).differences
    assert (found.place, found.field, found.expected, found.found) == ("default/orders/a", "revision", "5", "1")
    async with told(nats, tmp_path):
        await until(lambda: topology(broker, key("a")), lambda seen: seen is not None and seen.revision == 5)
    await c.register()
    [found] = (await verified(broker)).differences
    assert (found.place, found.found) == ("default/orders/c", "nobody is there")


async def test_a_cache_that_shows_something_else_is_found(
    nats: EmbeddedBroker, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody it lacks, somebody else, another state; what is on its way is waited for; one of no use is told."""
    monkeypatch.setattr(settling, "SETTLED", 1.5)
    for id in "ab":
        await Service(broker, key(id), heartbeat=100, ttl=300).register()
    async with told(nats, tmp_path):
        a, b = [state for id in "ab" if isinstance(state := await topology(broker, key(id)), Instance)]
        marker = await topology(broker, key("marker", "zz-marker"))
        assert isinstance(marker, Instance)
        critical = msgspec.structs.replace(a, health="critical")
        nobody = msgspec.structs.replace(b, id="x")
        wrong = [((b, marker), "a", ""), ((critical, b, marker), "a", "health"), ((a, b, nobody, marker), "x", "")]
        for instances, place, field in wrong:
            [found] = (await verified(broker, cache=shows(instances))).differences
            assert (found.part, found.place, found.field) == ("cache", f"default/orders/{place}", field)
        late = [(marker,), (a, marker), (a, b, marker)]
        found_none = await verified(broker, cache=shows(*late))
        assert found_none.differences == ()
        assert found_none.compared[-1].what == "a cache of namespace default"

        async def useless() -> Shown:
            return Shown(namespace="default", unusable="it does not load")

        assert (await verified(broker, cache=useless)).not_compared[-1].endswith("default: it does not load")


def shows(*looks: tuple[Instance, ...]) -> Look:
    """A cache that shows these, look by look, and then the last ones for ever."""
    rest = list(looks)

    async def look() -> Shown:
        return Shown(namespace="default", instances=rest.pop(0) if len(rest) > 1 else rest[0])

    return look


async def test_what_is_said_while_it_verifies_is_folded_too(
    nats: EmbeddedBroker, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody comes once the log was read to its end, and stays: the cache that shows it is right."""
    monkeypatch.setattr(settling, "SETTLED", 1.5)
    async with told(nats, tmp_path):
        marker = await topology(broker, key("marker", "zz-marker"))
        assert isinstance(marker, Instance)

        async def look() -> Shown:
            late = await topology(broker, key("late"))
            if late is None:
                await Service(broker, key("late"), heartbeat=100, ttl=300).register()
                late = await until(lambda: topology(broker, key("late")), seconds=30)
            assert isinstance(late, Instance)
            return Shown(namespace="default", instances=(marker, late))

        assert (await verified(broker, cache=look)).differences == ()
