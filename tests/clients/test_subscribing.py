"""Directories of one registry that follow the same: one subscription for all of them, for as long as one is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from nats.aio.subscription import Subscription

from adsum.clients import Directory, Registry
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.wire import Heard
from tests.waiting import until

from .announcer import Announcer

CHANGES, MARKS = subjects.changes("default", "orders"), subjects.service_mark("default", "orders")


def revisions(directory: Directory) -> dict[str, int]:
    return {found.id: found.revision for found in directory.instances()}


def subscribed(registry: Registry) -> list[str]:
    """What the driver has asked for about the service, each subscription once."""
    asked = [one.subject for one in registry.broker._client._subs.values()]
    return sorted(subject for subject in asked if subject in (CHANGES, MARKS))


async def test_many_directories_share_one_subscription(registry: Registry, announcer: Announcer) -> None:
    """Each hears every change and is proven; whoever leaves takes it from nobody; the last one ends it."""
    await announcer.put("orders", "a", 1)
    async with AsyncExitStack() as stack, announcer.marking():
        made = [await stack.enter_async_context(registry.directory("orders")) for _ in range(5)]
        assert subscribed(registry) == [CHANGES, MARKS]
        await announcer.put("orders", "b", 2)
        for directory in made:
            await until(lambda directory=directory: revisions(directory), {"a": 1, "b": 2}.__eq__)  # type: ignore[misc]
        assert len({id(directory.get("orders", "b")) for directory in made}) == 1  # decoded once
        async with registry.directory("orders") as passing:
            assert revisions(passing) == {"a": 1, "b": 2}
        await announcer.put("orders", "a", 3)
        for directory in made:
            await until(lambda directory=directory: revisions(directory), {"a": 3, "b": 2}.__eq__)  # type: ignore[misc]
            await until(lambda directory=directory: directory.age, lambda age: age < 1)  # type: ignore[misc]
    assert subscribed(registry) == []
    async with registry.directory("orders") as again:
        assert subscribed(registry) == [CHANGES, MARKS]
        await announcer.put("orders", "c", 4)
        await until(lambda: revisions(again), {"a": 3, "b": 2, "c": 4}.__eq__)


async def test_who_gives_up_while_it_subscribes_takes_nothing_from_who_waits(
    registry: Registry, announcer: Announcer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is cancelled in the middle of subscribing for all: the next one subscribes, and hears."""
    begun, listen, gate = asyncio.Event(), Broker.listen, asyncio.Event()

    async def slow(self: Broker, subject: str, hear: Callable[[Heard], None]) -> Subscription:
        if subject == CHANGES and not begun.is_set():
            begun.set()
            await gate.wait()
        return await listen(self, subject, hear)

    monkeypatch.setattr(Broker, "listen", slow)

    async def enter() -> None:
        async with registry.directory("orders"):
            pytest.fail("it entered without a subscription")

    first = asyncio.create_task(enter())
    await begun.wait()
    async with registry.directory("orders", wait=0) as second:
        await until(lambda: len(second._subscriptions._shared[CHANGES].listeners), (2).__eq__)
        first.cancel()
        await asyncio.wait([first])
        assert await second.loaded(10)
        assert subscribed(registry) == [CHANGES, MARKS]
        await announcer.put("orders", "a", 1)
        await until(lambda: revisions(second), {"a": 1}.__eq__)
    assert subscribed(registry) == []
