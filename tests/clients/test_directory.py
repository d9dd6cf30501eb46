"""A directory on a real broker: loading, following, being proven, and what it does when messages are lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from nats.aio.subscription import Subscription

from adsum.clients import Change, Directory, Registry
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.errors import InvalidValue
from adsum.projector.embedded import EmbeddedBroker
from tests.waiting import until

from .announcer import Announcer, instance


def ids(directory: Directory) -> set[str]:
    return {instance.id for instance in directory.instances()}


def subscription_of(directory: Directory) -> Subscription:
    """Over which it hears of changes."""
    subscription = directory._subscriptions._shared[subjects.changes("default", "orders")].subscription
    assert subscription is not None
    return subscription


async def test_it_loads_what_is_there_and_hears_of_changes(registry: Registry, announcer: Announcer) -> None:
    await announcer.put("orders", "a", 1)
    await announcer.put("payments", "p", 2)
    await announcer.put("other", "o", 3)
    async with registry.directory("orders", "payments") as directory:
        assert directory.state == "live"
        assert directory.age < 1
        assert ids(directory) == {"a", "p"}
        await announcer.put("orders", "b", 4, health="critical")
        await until(lambda: ids(directory), {"a", "b", "p"}.__eq__)
        assert {found.id for found in directory.instances("orders", routable=True)} == {"a"}
        assert directory.instances("orders") is directory.instances("orders")
        found = directory.get("orders", "b")
        assert found is not None
        assert found.revision == 4
        assert directory.get("orders", "p") is None
        await announcer.end("orders", "a", 5)
        await until(lambda: ids(directory), {"b", "p"}.__eq__)
        assert len(directory) == 2


async def test_a_service_that_is_not_followed_is_not_empty(registry: Registry, announcer: Announcer) -> None:
    await announcer.put("billing", "b", 1)
    async with registry.directory("orders", "payments", wait=0) as some, registry.directory() as all_:
        asks: tuple[Callable[[], object], ...] = (
            lambda: some.instances("billing"),
            lambda: some.instances("billing", routable=True),
            lambda: some.get("billing", "b"),
        )
        for _ in range(2):  # also before it is loaded
            for ask in asks:
                with pytest.raises(InvalidValue, match=r"'billing'.*not followed.*orders,payments"):
                    ask()
            assert await some.loaded(10)
        assert some.instances("payments") == ()
        assert len(all_.instances("billing")) == 1
        assert all_.instances("nobody") == ()


async def test_a_bad_name_is_refused_at_once(registry: Registry) -> None:
    with pytest.raises(InvalidValue, match="'my-orders' would do"):
        registry.directory("My Orders")
    with pytest.raises(InvalidValue):
        registry.directory(capability="no spaces")
    with pytest.raises(InvalidValue):
        registry.directory("orders", poll_interval=0)


async def test_without_marks_it_says_that_it_is_stale(
    registry: Registry, announcer: Announcer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adsum.clients.directory.STALE_AFTER", 0.5)
    await announcer.put("orders", "a", 1)
    async with registry.directory("orders") as directory:
        await until(lambda: directory.state, "stale".__eq__)
        assert ids(directory) == {"a"}
        async with announcer.marking():
            await until(lambda: directory.state, "live".__eq__)


async def test_who_is_not_proven_any_more_says_so_in_the_log(
    registry: Registry, announcer: Announcer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once when it begins, and when it is over; not where no mark ever came: that namespace may never have had any."""
    monkeypatch.setattr("adsum.clients.directory.STALE_AFTER", 0.5)
    monkeypatch.setattr("adsum.clients.directory.LOOK_INTERVAL", 0.1)

    def told() -> list[str]:
        return [record.message for record in caplog.records if "directory of default/orders is stale" in record.message]

    caplog.set_level("INFO", "adsum.directory")
    async with registry.directory("orders") as directory:
        await until(lambda: directory.state, "stale".__eq__)
        async with announcer.marking():
            await until(lambda: directory.state, "live".__eq__)
            assert told() == []
        await until(told)
        assert "no adsumd has proven it complete" in told()[0]
        assert "adsum status" in told()[0]
        async with announcer.marking():
            await until(lambda: any("works again" in text for text in told()))
    assert len(told()) == 2


async def test_a_missed_change_is_repaired_by_marks(registry: Registry, announcer: Announcer) -> None:
    await announcer.put("orders", "a", 1)
    async with registry.directory("orders") as directory:
        await registry.broker.unsubscribe(subscription_of(directory))  # as if messages were dropped
        await announcer.put("orders", "b", 2)
        await announcer.end("orders", "a", 3)
        assert ids(directory) == {"a"}
        async with announcer.marking():
            await until(lambda: ids(directory), {"b"}.__eq__)


async def test_a_missed_end_of_the_last_instance_is_repaired_by_marks(registry: Registry, announcer: Announcer) -> None:
    async with registry.directory("orders") as directory, announcer.marking():
        await announcer.put("orders", "a", 1)
        await until(lambda: ids(directory), {"a"}.__eq__)
        await registry.broker.unsubscribe(subscription_of(directory))
        await announcer.end("orders", "a", 2)
        await until(lambda: directory.instances(), ().__eq__)
        await until(lambda: directory.age, lambda age: age < 0.3)


async def test_a_missed_change_is_repaired_without_any_mark_after_the_poll_interval(
    registry: Registry, announcer: Announcer
) -> None:
    await announcer.put("orders", "a", 1)
    async with registry.directory("orders", poll_interval=0.3) as directory:
        await registry.broker.unsubscribe(subscription_of(directory))
        await announcer.put("orders", "b", 2)
        await announcer.end("orders", "a", 3)
        await until(lambda: ids(directory), {"b"}.__eq__)


async def test_a_partial_snapshot_is_never_shown(
    registry: Registry, announcer: Announcer, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "adsum.directory")
    for number in range(10):
        await announcer.put("orders", f"i{number}", number + 1)
    async with registry.directory("orders") as directory:
        smallest = 10
        changes = directory.changes(initial=False)
        await broker._js.purge_stream("ADSUM_TOPOLOGY")  # the projector begins to rebuild
        for number in range(3):
            await announcer.tell(instance("orders", f"i{number}", number + 1, announcer.epoch))

        def resyncs() -> int:
            nonlocal smallest
            smallest = min(smallest, len(directory))
            return sum("reading it anew" in record.message for record in caplog.records)

        directory._census.reconnected()
        directory._wake.set()
        await until(resyncs, lambda count: count >= 1)
        async with announcer.marking():  # the leader's marks still tell of all ten
            await until(lambda: directory.age, lambda age: age < 0.2)
            await until(resyncs)
        assert smallest == len(directory) == 10
        assert not changes._pending


async def test_it_comes_through_a_restart_of_the_broker(
    nats: EmbeddedBroker, registry: Registry, announcer: Announcer, broker: Broker, tmp_path: Path
) -> None:
    await announcer.put("orders", "a", 1)
    await announcer.put("orders", "b", 2)
    async with registry.directory("orders") as directory, announcer.marking():
        await nats.stop()
        await until(lambda: directory.state, "stale".__eq__)
        assert ids(directory) == {"a", "b"}
        again = await EmbeddedBroker.start(tmp_path / "broker", port=int(nats.url.rsplit(":", 1)[1]))
        try:
            await broker.ready(10)
            await announcer.end("orders", "a", 3)
            await announcer.put("orders", "c", 4)
            await until(lambda: ids(directory), {"b", "c"}.__eq__)
            await until(lambda: directory.state, "live".__eq__)
        finally:
            await again.stop()


async def test_a_capability_is_followed_through_the_whole_namespace(registry: Registry, announcer: Announcer) -> None:
    await announcer.put("orders", "a", 1, capabilities=("pay",))
    await announcer.put("orders", "b", 2)
    async with registry.directory(capability="pay") as directory, announcer.marking():
        changes = directory.changes()
        assert ids(directory) == {"a"}
        assert directory.get("orders", "b") is None
        await announcer.put("bank", "c", 3, capabilities=("pay", "lend"))
        await announcer.put("orders", "b", 4, capabilities=("pay",))
        await until(lambda: ids(directory), {"a", "b", "c"}.__eq__)
        await announcer.put("orders", "a", 5)
        await until(lambda: ids(directory), {"b", "c"}.__eq__)
        seen = [await anext(changes) for _ in range(2)]
        assert {(change.kind, change.instance.id) for change in seen} == {("joined", "b"), ("joined", "c")}
        await until(lambda: directory.age, lambda age: age < 0.2)


async def test_a_slow_reader_of_changes_loses_nothing_and_does_not_grow(
    registry: Registry, announcer: Announcer
) -> None:
    await announcer.put("orders", "a", 1)
    await announcer.put("orders", "b", 2)
    async with registry.directory("orders") as directory:
        slow, late = directory.changes(), directory.changes(initial=False)
        first = [(await anext(slow)) for _ in range(2)]
        assert [change.kind for change in first] == ["joined", "joined"]
        for revision in range(3, 103):
            await announcer.put("orders", "a", revision)
        await announcer.end("orders", "b", 103)
        await announcer.put("orders", "c", 104)
        await announcer.put("orders", "d", 105)
        await announcer.end("orders", "d", 106)
        await announcer.put("orders", "e", 107)
        await until(lambda: ids(directory), {"a", "c", "e"}.__eq__)
        for reader in (slow, late):
            assert len(reader._pending) == 4
            rest = {change.instance.id: change for change in [await anext(reader) for _ in range(4)]}
            assert {id: change.kind for id, change in rest.items()} == {
                "a": "changed",
                "b": "left",
                "c": "joined",
                "e": "joined",
            }
            a, b = rest["a"], rest["b"]
            assert a.before is not None
            assert a.after is not None
            assert (a.before.revision, a.after.revision) == (1, 102)
            assert b.departed is not None
            assert b.departed.revision == 103


async def test_changes_end_with_the_block(registry: Registry, announcer: Announcer) -> None:
    await announcer.put("orders", "a", 1)
    seen: list[Change] = []

    async def read(directory: Directory) -> None:
        async for change in directory.changes():
            seen.append(change)

    async with registry.directory("orders") as directory:
        reading = asyncio.create_task(read(directory))
        await until(lambda: len(seen), (1).__eq__)
    await asyncio.wait_for(reading, 5)


async def test_what_cannot_be_read_is_skipped(
    registry: Registry, announcer: Announcer, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with registry.directory("orders") as directory:
        await broker.publish("adsum.v1.default.change.orders.bad", b"{")
        await broker.publish("adsum.v1.default.mark.orders", b"[]")
        await broker.publish("adsum.v1.default.mark", b"null")
        await announcer.put("orders", "a", 1)
        await until(lambda: ids(directory), {"a"}.__eq__)
        await until(lambda: [record.levelname for record in caplog.records].count("WARNING"), (3).__eq__)


async def test_it_leaves_nothing_at_the_broker(registry: Registry, announcer: Announcer, broker: Broker) -> None:
    await announcer.put("orders", "a", 1)
    async with registry.directory("orders"):  # brings the registry's own: answers to requests, the namespace's marks
        assert len(registry.broker._client._subs) == 4
    for _ in range(20):
        async with registry.directory("orders"):
            info = await broker.stream_info("ADSUM_TOPOLOGY")
            assert info is not None
            assert info.state.consumer_count == 0
    assert len(registry.broker._client._subs) == 2
