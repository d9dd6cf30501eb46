"""The definitions of the streams, and what is told where one that exists differs. On a server: tests/integration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nats.js.api import (
    ClusterInfo,
    DiscardPolicy,
    PeerInfo,
    PersistMode,
    RePublish,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
    StreamSource,
    StreamState,
    SubjectTransform,
)

from adsum.events.errors import StreamMismatch
from adsum.events.streams import _COMPARED, BEATS, EVENTS, TOPOLOGY, alone, compare, definitions

SINGLE = {str(wanted.name): wanted for wanted in definitions(1)}
CLUSTER = {str(wanted.name): wanted for wanted in definitions(3)}

OTHER_SETTINGS = {
    "subjects": ["other.>"],
    "retention": RetentionPolicy.WORK_QUEUE,
    "storage": StorageType.MEMORY,
    "num_replicas": 3,
    "discard": DiscardPolicy.NEW,
    "max_age": 60.0,
    "max_msgs": 1000,
    "max_bytes": 1_000_000,
    "max_msgs_per_subject": 7,
    "max_msg_size": 100,
    "max_consumers": 5,
    "no_ack": True,
    "mirror": StreamSource(name="other"),
    "sources": [StreamSource(name="other")],
    "subject_transform": SubjectTransform(src=">", dest="x.>"),
    "deny_delete": True,
    "deny_purge": True,
    "allow_direct": True,
    "allow_msg_ttl": True,
    "republish": RePublish(src=">", dest="x.>"),
    "persist_mode": PersistMode.ASYNC,
    "sealed": True,
}


def test_the_log_is_kept_for_ever_and_nothing_of_it_can_be_taken_away() -> None:
    for log in (SINGLE[EVENTS], CLUSTER[EVENTS]):
        assert (log.retention, log.storage, log.discard) == (
            RetentionPolicy.LIMITS,
            StorageType.FILE,
            DiscardPolicy.OLD,
        )
        assert (log.max_age, log.max_msgs, log.max_bytes, log.max_msgs_per_subject) == (0, -1, -1, -1)
        assert log.deny_delete
        assert log.deny_purge
        assert log.persist_mode is None


def test_only_what_is_repaired_by_the_next_message_is_not_flushed() -> None:
    assert [name for name, wanted in SINGLE.items() if wanted.persist_mode is PersistMode.ASYNC] == [BEATS, TOPOLOGY]
    assert all(wanted.persist_mode is None for wanted in CLUSTER.values())
    assert [name for name, wanted in CLUSTER.items() if wanted.storage is StorageType.MEMORY] == [BEATS]
    assert all(wanted.storage is StorageType.FILE for wanted in SINGLE.values())
    assert {wanted.num_replicas for wanted in CLUSTER.values()} == {3}


def test_only_topology_tells_of_changes() -> None:
    assert [name for name, wanted in SINGLE.items() if wanted.republish] == [TOPOLOGY]
    assert SINGLE[TOPOLOGY].republish == RePublish(
        src="adsum.v1.*.topology.*.*", dest="adsum.v1.{{wildcard(1)}}.change.{{wildcard(2)}}.{{wildcard(3)}}"
    )


@pytest.mark.parametrize("wanted", [*SINGLE.values(), *CLUSTER.values()], ids=lambda wanted: str(wanted.name))
def test_a_definition_is_the_same_as_itself(wanted: StreamConfig) -> None:
    assert compare(wanted, wanted) == []


def test_what_the_broker_fills_in_makes_no_difference() -> None:
    found = replace(
        SINGLE[EVENTS], max_msgs_per_subject=-1, max_msg_size=-1, sources=[], metadata={"_nats.ver": "2.15"}
    )
    assert compare(found, SINGLE[EVENTS]) == []


@pytest.mark.parametrize("field", OTHER_SETTINGS)
def test_each_field_that_differs_is_told(field: str) -> None:
    wanted = next(wanted for wanted in SINGLE.values() if getattr(wanted, field) != OTHER_SETTINGS[field])
    found = replace(wanted, **{field: OTHER_SETTINGS[field]})
    assert [difference[0] for difference in compare(found, wanted)] == [field]
    message = str(StreamMismatch(str(wanted.name), compare(found, wanted)))
    assert f"stream {wanted.name} exists with other settings: {field} is " in message


def test_every_field_that_is_compared_is_in_this_table() -> None:
    """What is left to the operator: compression, placement, the description, how long a message id is remembered, …"""
    assert set(OTHER_SETTINGS) == set(_COMPARED)


@pytest.mark.parametrize(
    ("replicas", "leader", "current", "expected"),
    [
        (1, "n9", None, False),
        (3, "n9", [True, True], False),
        (3, "n9", [True, False], False),
        (3, "n9", [False, False], True),
        (3, "n9", [], True),
        (3, None, [False, False, True], True),
        (5, "n9", [True, True, False, False], False),
        (5, "n9", [True, False, False, False], True),
    ],
)
def test_who_leads_no_majority_is_alone(
    replicas: int, leader: str | None, current: list[bool] | None, expected: bool
) -> None:
    peers = [PeerInfo(name=f"n{at}", current=is_, offline=False, active=1) for at, is_ in enumerate(current or ())]
    cluster = ClusterInfo(name="test", leader=leader, replicas=peers) if current is not None else None
    state = StreamState(messages=0, bytes=0, first_seq=0, last_seq=0, consumer_count=0)
    config = replace(CLUSTER[EVENTS], num_replicas=replicas)
    assert alone(StreamInfo(config=config, state=state, cluster=cluster)) is expected
