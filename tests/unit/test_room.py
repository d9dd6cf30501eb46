"""The places for what is on its way to the broker: none is lost and none is given twice, in the order of asking."""

from __future__ import annotations

import asyncio
import random

import pytest

from adsum.events import publishing
from adsum.events.publishing import _Room


async def test_places_are_given_in_the_order_of_asking() -> None:
    room, got = _Room(2), []

    async def take(number: int) -> None:
        await room.take()
        got.append(number)

    tasks = [asyncio.create_task(take(number)) for number in range(6)]
    await asyncio.sleep(0)
    assert got == [0, 1]
    tasks[2].cancel()
    for _ in range(3):
        room.give_back()
        await asyncio.sleep(0)
    await asyncio.wait(tasks)
    assert got == [0, 1, 3, 4, 5]


async def test_who_waits_too_long_is_told_and_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "STALL_LIMIT", 0.01)
    room = _Room(1)
    await room.take()
    with pytest.raises(TimeoutError):
        await room.take()
    room.give_back()
    await room.take()


async def test_no_place_is_lost_whenever_who_waits_is_cancelled() -> None:
    """Also in the very moment in which it would have had one."""
    room, inside, most = _Room(5), 0, 0

    async def use() -> None:
        nonlocal inside, most
        await room.take()
        inside += 1
        most = max(most, inside)
        try:
            await asyncio.sleep(0)
        finally:
            inside -= 1
            room.give_back()

    for _ in range(300):
        tasks = [asyncio.create_task(use()) for _ in range(20)]
        for _ in range(random.randrange(6)):
            await asyncio.sleep(0)
        for task in random.sample(tasks, 10):
            task.cancel()
        await asyncio.wait(tasks)
    assert most == 5
    async with asyncio.timeout(1):
        for _ in range(5):
            await room.take()
    assert room._free == 0
    assert not [turn for turn in room._queue if not turn.done()]
