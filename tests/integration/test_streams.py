"""The streams on a real server: created once, compared ever after, never changed but in one harmless setting."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, PersistMode, StorageType, StreamConfig, StreamInfo

from adsum.events import streams, subjects
from adsum.events.altering import change_stream
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.codec import decode_topology, encode
from adsum.events.errors import BrokerRefused, BrokerUnavailable, StreamMismatch
from adsum.events.ids import is_uuid7, new_id
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, alone, definitions, ensure_streams, read_epoch
from adsum.projector.embedded import EmbeddedBroker
from tests.cluster import cluster
from tests.unit.samples import PRESENT
from tests.waiting import until


@pytest.fixture
async def bare(nats: EmbeddedBroker) -> AsyncIterator[Broker]:
    """A connection to a broker on which no adsumd has run."""
    connection = Broker.open(BrokerSettings(url=nats.url), "test")
    await connection.ready(10)
    yield connection
    await connection.close()


async def test_created_once_and_then_found(bare: Broker) -> None:
    epoch = await ensure_streams(bare)
    assert is_uuid7(epoch)
    assert await ensure_streams(bare) == epoch
    assert await read_epoch(bare) == epoch
    for name in (EVENTS, BEATS, TOPOLOGY):
        assert await bare.stream_info(name) is not None


async def test_a_new_log_has_an_epoch_above_all_seen(bare: Broker) -> None:
    seen = ("fe000000-0000-7000-8000-000000000000", new_id())
    assert await ensure_streams(bare, epochs_seen=seen) > max(seen)


async def test_many_daemons_at_once_agree(nats: EmbeddedBroker) -> None:
    brokers = [Broker.open(BrokerSettings(url=nats.url), f"daemon {number}") for number in range(6)]
    await asyncio.gather(*(broker.ready(10) for broker in brokers))
    epochs = await asyncio.gather(*(ensure_streams(broker) for broker in brokers))
    assert len(set(epochs)) == 1
    await asyncio.gather(*(broker.close() for broker in brokers))


async def test_without_a_log_there_is_no_epoch(bare: Broker) -> None:
    with pytest.raises(BrokerRefused, match="no adsumd has run"):
        await read_epoch(bare)


CHANGED: list[tuple[str, str, dict[str, object]]] = [
    (EVENTS, "max_age", {"max_age": 3600.0}),
    (EVENTS, "max_msgs", {"max_msgs": 1000}),
    (EVENTS, "max_bytes", {"max_bytes": 1_000_000}),
    (EVENTS, "max_msgs_per_subject", {"max_msgs_per_subject": 5}),
    (EVENTS, "max_msg_size", {"max_msg_size": 1024}),
    (EVENTS, "max_consumers", {"max_consumers": 3}),
    (EVENTS, "deny_delete", {"deny_delete": False}),
    (EVENTS, "deny_purge", {"deny_purge": False}),
    (EVENTS, "no_ack", {"no_ack": True}),
    (EVENTS, "subjects", {"subjects": ["adsum.v1.default.event.*.*"]}),
    (EVENTS, "storage", {"storage": StorageType.MEMORY}),
    (EVENTS, "discard", {"discard": DiscardPolicy.NEW}),
    (EVENTS, "persist_mode", {"persist_mode": PersistMode.ASYNC, "allow_atomic": False}),
    (EVENTS, "allow_direct", {"allow_direct": True}),
    (BEATS, "subjects", {"subjects": [subjects.ALL_BEATS]}),
    (BEATS, "max_age", {"max_age": 600.0}),
    (BEATS, "persist_mode", {"persist_mode": None}),
    (TOPOLOGY, "republish", {"republish": None}),
    (TOPOLOGY, "allow_msg_ttl", {"allow_msg_ttl": False}),
    (TOPOLOGY, "allow_direct", {"allow_direct": False}),
    (TOPOLOGY, "max_msgs_per_subject", {"max_msgs_per_subject": 2}),
]


@pytest.mark.parametrize(("stream", "field", "other"), CHANGED, ids=lambda value: str(value)[:20])
async def test_one_that_exists_with_other_settings_is_told_by_field(
    bare: Broker, stream: str, field: str, other: dict[str, object]
) -> None:
    wanted = next(wanted for wanted in definitions() if wanted.name == stream)
    await bare.create_stream(replace(wanted, **other))
    with pytest.raises(StreamMismatch) as caught:
        await ensure_streams(bare)
    assert caught.value.stream == stream
    assert [difference[0] for difference in caught.value.differences] == [field]
    found = await bare.stream_info(stream)
    assert found is not None
    assert [name for name, _, _ in streams.compare(found.config, wanted)] == [field]


async def test_a_log_that_was_made_before_batches_takes_them_from_now_on(
    bare: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """All else of it stays as it is, what it holds too, and it is said once."""
    caplog.set_level(logging.INFO, "adsum.streams")
    epoch = await ensure_streams(bare)
    await change_stream(bare, EVENTS, lambda found: found.update(allow_atomic=False, description="mine"))
    batch = [(f"adsum.v1.default.event.orders.{id}", b"{}", {}) for id in "ab"]
    with pytest.raises(BrokerRefused, match="atomic publish is disabled"):
        await (await bare.store_together(EVENTS, batch))
    await bare.store(EVENTS, "adsum.v1.default.event.orders.a", b"{}", {})
    before = await bare.stream_info(EVENTS)
    assert await ensure_streams(bare) == await ensure_streams(bare) == epoch
    after = await bare.stream_info(EVENTS)
    assert before is not None
    assert after is not None
    assert after.config == replace(before.config, allow_atomic=True, metadata=after.config.metadata)
    assert after.state == before.state
    assert [record.message.count("takes them") for record in caplog.records] == [1]
    assert await (await bare.store_together(EVENTS, batch)) == 3


async def test_a_log_without_an_epoch_is_not_ours(bare: Broker) -> None:
    await bare.create_stream(definitions()[0])
    with pytest.raises(StreamMismatch, match="adsum-epoch"):
        await ensure_streams(bare)


async def test_a_foreign_stream_over_our_subjects_is_refused(bare: Broker) -> None:
    await bare.create_stream(StreamConfig(name="EVERYTHING", subjects=["adsum.>"], storage=StorageType.MEMORY))
    with pytest.raises(BrokerRefused, match="create stream ADSUM_EVENTS: subjects overlap"):
        await ensure_streams(bare)


async def test_more_replicas_than_servers_is_refused(bare: Broker) -> None:
    with pytest.raises(BrokerRefused, match="create stream ADSUM_EVENTS: replicas > 1 not supported"):
        await ensure_streams(bare, replicas=3)


async def test_a_stored_state_is_told_as_a_change(broker: Broker) -> None:
    heard: list[Msg] = []

    async def hear(msg: Msg) -> None:
        heard.append(msg)

    await broker.subscribe(subjects.changes("default", "orders"), hear)
    sequence = await broker.store(TOPOLOGY, subjects.topology(PRESENT.key), encode(PRESENT), {})
    [msg] = await until(lambda: heard)
    assert msg.subject == subjects.change(PRESENT.key)
    assert decode_topology(msg.data) == PRESENT
    assert msg.headers is not None
    assert msg.headers["Nats-Sequence"] == str(sequence)


async def test_only_the_last_state_of_each_instance_is_kept(broker: Broker) -> None:
    for _ in range(3):
        await broker.store(TOPOLOGY, subjects.topology(PRESENT.key), encode(PRESENT), {})
    info = await broker.stream_info(TOPOLOGY)
    assert info is not None
    assert (info.state.messages, info.state.last_seq) == (1, 3)


async def _asked(bus: Broker) -> StreamInfo | None:
    """What is told of the log now; None while nobody answers."""
    try:
        return await bus.stream_info(EVENTS)
    except BrokerUnavailable:
        return None


async def test_a_leader_that_lost_its_followers_is_known_to_be_alone(tmp_path: Path) -> None:
    """It answers for some seconds all the same, and what it tells of the log's end may be out of date."""
    async with cluster(tmp_path) as nodes, AsyncExitStack() as stack:
        buses = [Broker.open(BrokerSettings(url=node.url), "test") for node in nodes]
        for bus in buses:
            stack.push_async_callback(bus.close)
            await bus.ready(10)
        await until(lambda: _made(buses[0]), seconds=30)
        info = await until(lambda: _asked(buses[0]), lambda info: info is not None and not alone(info), 20)
        assert info is not None
        assert info.cluster is not None
        leader = int(str(info.cluster.leader).removeprefix("n"))
        followers = [node for number, node in enumerate(nodes) if number != leader]
        for node in followers:
            node.signal(signal.SIGSTOP)
        await until(lambda: _asked(buses[leader]), lambda info: info is not None and alone(info))
        for node in followers:
            node.signal(signal.SIGCONT)
        await until(lambda: _asked(buses[leader]), lambda info: info is not None and not alone(info), 30)


async def _made(bus: Broker) -> bool:
    """Whether the streams could be created; a cluster that has just started takes a while."""
    try:
        await ensure_streams(bus, 3)
    except (BrokerUnavailable, BrokerRefused):
        return False
    return True
