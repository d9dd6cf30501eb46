"""Saying something in the log, on the condition that the last word is the one its author knows."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered
from adsum.events.log import Outrun, Word, last_word, say
from adsum.events.names import Key
from adsum.events.streams import EVENTS
from adsum.projector.embedded import EmbeddedBroker
from tests.making import OWNER, key, registered

KEY = key()


async def test_nobody_said_anything(broker: Broker) -> None:
    assert await last_word(broker, KEY) is None


async def test_a_first_word_and_one_after_it(broker: Broker) -> None:
    first = registered()
    assert await say(broker, KEY, first, 0) == 1
    word = await last_word(broker, KEY)
    assert isinstance(word, Word)
    assert (word.sequence, word.event) == (1, first)
    assert word.time > 1_600_000_000
    goodbye = Deregistered(id=new_id(), term=first.term, by=OWNER)
    assert await say(broker, KEY, goodbye, 1) == 2
    assert (await last_word(broker, KEY) or word).event == goodbye


async def test_who_does_not_know_the_last_word_is_outrun_and_told_it(broker: Broker) -> None:
    theirs, ours = registered(), registered()
    await say(broker, KEY, theirs, 0)
    with pytest.raises(Outrun) as caught:
        await say(broker, KEY, ours, 0)
    assert caught.value.last is not None
    assert (caught.value.key, caught.value.last.sequence, caught.value.last.event) == (KEY, 1, theirs)
    with pytest.raises(Outrun):
        await say(broker, KEY, ours, 7)
    info = await broker.stream_info(EVENTS)
    assert info is not None
    assert info.state.messages == 1


async def test_of_many_at_once_one_is_stored(broker: Broker) -> None:
    results = await asyncio.gather(*(say(broker, KEY, registered(), 0) for _ in range(20)), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Outrun"] * 19 + ["int"]


async def test_other_instances_do_not_matter(broker: Broker) -> None:
    for number, name in enumerate(("a", "b", "c"), start=1):
        assert await say(broker, Key("default", "orders", name), registered(), 0) == number


async def test_one_s_own_event_was_stored_after_all(broker: Broker) -> None:
    """What happens after a publish that timed out: the same event said again."""
    ours = registered()
    assert await say(broker, KEY, ours, 0) == 1
    assert await say(broker, KEY, ours, 0) == 1
    assert await say(broker, KEY, ours, 0) == 1
    info = await broker.stream_info(EVENTS)
    assert info is not None
    assert info.state.messages == 1


async def test_one_s_own_event_below_another_is_outrun(broker: Broker) -> None:
    ours = registered()
    await say(broker, KEY, ours, 0)
    lasting = msgspec.structs.replace(ours, id=new_id())
    await say(broker, KEY, lasting, 1)
    with pytest.raises(Outrun) as caught:
        await say(broker, KEY, ours, 0)
    assert caught.value.last is not None
    assert caught.value.last.event == lasting


async def test_a_last_word_that_cannot_be_read(broker: Broker) -> None:
    await broker.store(EVENTS, subjects.event(KEY), b"junk", {})
    word = await last_word(broker, KEY)
    assert word is not None
    assert (word.sequence, word.event) == (1, None)
    with pytest.raises(Outrun):
        await say(broker, KEY, registered(), 0)
    assert await say(broker, KEY, registered(), 1) == 2


async def test_without_a_broker_nothing_is_said(broker: Broker, nats: EmbeddedBroker) -> None:
    await nats.stop()
    with pytest.raises(BrokerUnavailable):
        await say(broker, KEY, registered(), 0, timeout=0.5)
    with pytest.raises(BrokerUnavailable):
        await last_word(broker, KEY)
