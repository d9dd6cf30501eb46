"""What is said and asked together over one connection, on a real server."""

from __future__ import annotations

import asyncio

import pytest

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable
from adsum.events.log import Outrun, last_word, say
from adsum.events.streams import EVENTS, read_epoch
from adsum.events.together import SharedLog
from adsum.projector.embedded import EmbeddedBroker
from tests.making import key, registered
from tests.observing import whole_log
from tests.waiting import until


async def test_each_is_told_its_own_sequence(broker: Broker) -> None:
    shared, events = SharedLog(broker), [registered() for _ in range(2500)]
    told = await asyncio.gather(*(shared.say(key(f"i-{n}"), event, 0) for n, event in enumerate(events)))
    assert sorted(told) == list(range(1, 2501))
    for n in (0, 999, 1000, 1001, 2499):
        word = await last_word(broker, key(f"i-{n}"))
        assert word is not None
        assert (word.sequence, word.event) == (told[n], events[n])


async def test_one_that_is_outrun_is_told_so_and_the_others_are_stored(broker: Broker) -> None:
    shared, rival = SharedLog(broker), registered()
    await say(broker, key("i-50"), rival, 0)
    saying = [shared.say(key(f"i-{n}"), registered(), 0) for n in range(100)]
    told = await asyncio.gather(*saying, return_exceptions=True)
    refused = told.pop(50)
    assert isinstance(refused, Outrun)
    assert refused.last is not None
    assert refused.last.event == rival
    assert sorted(map(int, told)) == list(range(2, 101))  # type: ignore[call-overload]


async def test_two_words_on_one_instance_do_not_share_a_batch(broker: Broker) -> None:
    shared = SharedLog(broker)
    told = await asyncio.gather(*(shared.say(key(), registered(), after) for after in range(5)), return_exceptions=True)
    assert told == [1, 2, 3, 4, 5]


async def test_the_same_event_said_twice_is_stored_once(broker: Broker) -> None:
    shared, events = SharedLog(broker), [registered() for _ in range(10)]
    for _ in range(2):
        told = await asyncio.gather(*(shared.say(key(f"i-{n}"), event, 0) for n, event in enumerate(events)))
        assert sorted(told) == list(range(1, 11))


async def test_whose_author_was_cancelled_is_not_said(broker: Broker) -> None:
    shared = SharedLog(broker)
    saying = [asyncio.ensure_future(shared.say(key(f"i-{n}"), registered(), 0)) for n in range(10)]
    await asyncio.sleep(0)
    saying[4].cancel()
    told = await asyncio.gather(*saying, return_exceptions=True)
    stored = {message.subject.rpartition(".")[2] for message in await whole_log(broker)}
    assert isinstance(told[4], asyncio.CancelledError)
    assert stored == {f"i-{n}" for n in range(10)} - {"i-4"}


async def test_without_a_connection_all_are_told_at_once(nats: EmbeddedBroker, broker: Broker) -> None:
    shared = SharedLog(broker)
    await nats.stop()
    await until(lambda: not broker.connected)
    told = await asyncio.gather(
        *(shared.say(key(f"i-{n}"), registered(), 0) for n in range(10)), return_exceptions=True
    )
    assert {type(error) for error in told} == {BrokerUnavailable}


async def test_the_epoch_is_asked_once_for_all_and_anew_for_who_comes_later(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, asked = SharedLog(broker), []
    stream_info = broker.stream_info

    async def counted(stream: str) -> object:
        asked.append(stream)
        return await stream_info(stream)

    monkeypatch.setattr(broker, "stream_info", counted)
    epochs = await asyncio.gather(*(shared.epoch() for _ in range(100)))
    assert asked == [EVENTS]
    assert {*epochs} == {await read_epoch(broker)}
    first = asyncio.ensure_future(shared.epoch())
    await until(lambda: len(asked) == 3)
    await asyncio.gather(first, shared.epoch())
    assert len(asked) == 4
