"""drain and deregister: said in the knowledge of the last word, whoever owns the instance."""

from __future__ import annotations

import asyncio

from adsum.clients.cli.output import brief
from adsum.events.broker import Broker
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Deregistered, Expired, HealthChanged, Silence
from adsum.events.log import Outrun, last_word, say
from adsum.events.names import Key

from .programs import Adsum, types
from .test_reading import put


async def test_deregister_names_the_life_the_operator_and_the_reason(adsum: Adsum, broker: Broker) -> None:
    await put(broker, "orders", "a")
    result = await adsum("deregister", "orders", "a", "--reason", "wrong build")
    assert (result.code, result.err) == (0, "adsum: default/orders/a deregistered (sequence 2)\n")
    registered, deregistered = await adsum.events()
    assert deregistered["type"] == "deregistered"
    assert deregistered["term"] == registered["term"]
    assert deregistered["author"]["kind"] == "operator"
    assert "@" in deregistered["author"]["name"]
    assert deregistered["reason"] == "wrong build"


async def test_deregister_what_is_gone_already_says_so_and_stores_nothing(adsum: Adsum, broker: Broker) -> None:
    key = await put(broker, "orders", "a")
    term = (await adsum.events())[0]["term"]
    await say(broker, key, Deregistered(id=new_id(), term=term, by=Author("owner")), 1)
    result = await adsum("deregister", "orders", "a")
    assert result.code == 0
    assert "deregistered already, by its owner" in result.err
    assert types(await adsum.events()) == ["registered", "deregistered"]


async def test_deregistering_twice_says_who_was_first(adsum: Adsum, broker: Broker) -> None:
    await put(broker, "orders", "a")
    for _ in range(2):
        result = await adsum("deregister", "orders", "a")
        assert result.code == 0
    assert "was deregistered already, by an operator (" in result.err


async def test_an_expired_one_is_deregistered_all_the_same_so_that_its_owner_stays_away(
    adsum: Adsum, broker: Broker
) -> None:
    key = await put(broker, "orders", "a")
    term = (await adsum.events())[0]["term"]
    silence = Silence(counter=1, silent=31, ttl=15)
    await say(broker, key, Expired(id=new_id(), term=term, by=Author("reaper"), evidence=silence), 1)
    assert (await adsum("deregister", "orders", "a")).code == 0
    events = await adsum.events()
    assert types(events) == ["registered", "expired", "deregistered"]
    assert events[2]["term"] == term
    drained = await adsum("drain", "orders", "a")
    assert drained.code == 1
    assert "is gone" in drained.err


async def test_drain_and_undo(adsum: Adsum, broker: Broker) -> None:
    await put(broker, "orders", "a")
    assert (await adsum("drain", "orders", "a", "--reason", "kernel")).code == 0
    assert (await adsum("drain", "orders", "a", "--undo")).code == 0
    events = await adsum.events()
    assert [(event["mode"], event.get("reason")) for event in events[1:]] == [("draining", "kernel"), ("serving", "")]


async def test_an_unknown_one_is_an_error_with_near_names(adsum: Adsum, broker: Broker) -> None:
    await put(broker, "orders", "orders-1")
    await put(broker, "web", id := new_id())
    for command in ("drain", "deregister"):
        result = await adsum(command, "web", brief(id))
        assert (result.code, result.err.endswith(f"; did you mean {id}?\n")) == (1, True)
        result = await adsum(command, "orders", "order-1")
        assert result.code == 1
        assert "there is no instance order-1 of orders in namespace default; did you mean orders-1?" in result.err
        result = await adsum(command, "order", "orders-1")
        assert result.code == 1
        assert "there is no service order in namespace default; did you mean orders?" in result.err
    assert types(await adsum.events()) == ["registered", "registered"]


async def test_it_speaks_again_when_somebody_else_was_faster(adsum: Adsum, broker: Broker) -> None:
    key = await put(broker, "orders", "a")
    speaking = asyncio.create_task(_speak_all_the_time(broker, key))
    try:
        for _ in range(3):
            result = await adsum("drain", "orders", "a")
            assert result.code == 0, result.err
    finally:
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
    assert types(await adsum.events()).count("mode-changed") == 3


async def _speak_all_the_time(broker: Broker, key: Key) -> None:
    while True:
        word = await last_word(broker, key)
        assert word is not None
        assert word.event is not None
        event = HealthChanged(id=new_id(), term=word.event.term, by=Author("owner"), health="passing")
        try:
            await say(broker, key, event, word.sequence)
        except Outrun:
            continue
        await asyncio.sleep(0.01)
