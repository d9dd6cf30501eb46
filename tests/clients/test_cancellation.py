"""A task inside our blocks that is cancelled ends, whatever the blocks were doing at that moment."""

from __future__ import annotations

import asyncio
import random

import pytest

from adsum.clients import Registry, connect
from adsum.events.broker import Broker
from adsum.projector.embedded import EmbeddedBroker

from .announcer import Announcer

ENDS_WITHIN = 15.0


async def blocks(url: str, chance: random.Random) -> None:
    """Enter and leave blocks for ever, losing the connection now and then."""
    while True:
        async with connect(url, ping=0.2) as registry:
            for _ in range(3):
                async with (
                    registry.directory("orders", wait=chance.choice((0, 0.5))) as orders,
                    registry.register("orders", port=80, heartbeat=0.1, ttl=0.3, wait=chance.choice((0, 0.5))) as me,
                ):
                    if chance.random() < 0.5:
                        lose(registry.broker)
                    await me.update(weight=2)
                    if chance.random() < 0.5:
                        lose(registry.broker)
                    await orders.loaded()


def lose(broker: Broker) -> None:
    """Lose the connection, if there is one."""
    transport = broker._client._transport
    if transport is not None:
        transport.close()  # type: ignore[no-untyped-call]  # the driver's own


async def cancelled_somewhen(url: str, chance: random.Random) -> None:
    """Run blocks and cancel them at a random moment; fails if they go on, or end with anything but that."""
    task = asyncio.create_task(blocks(url, chance))
    await asyncio.sleep(chance.expovariate(1 / 0.3))  # time itself is what is drawn here
    for _ in range(chance.randrange(100)):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=ENDS_WITHIN)
    assert done, f"it goes on: {task.get_stack()}"
    assert task.cancelled(), task.exception()


@pytest.mark.parametrize("seed", range(4))
async def test_opening_closing_and_reconnecting(nats: EmbeddedBroker, announcer: Announcer, seed: int) -> None:
    async with announcer.marking(every=0.05), asyncio.TaskGroup() as tasks:
        await announcer.put("orders", "a", 1)
        for number in range(25):
            tasks.create_task(cancelled_somewhen(nats.url, random.Random(100 * seed + number)))


@pytest.mark.parametrize("turns", range(0, 400, 30))
async def test_a_bug_in_its_task_and_a_cancellation_at_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """Of the two the bug may be told instead, but the block ends and so does the task."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    async def serve() -> None:
        async with registry.register("orders", port=80) as me:
            monkeypatch.setattr("adsum.clients.reconciler.next_event", broken)
            await me.update(weight=2)
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=ENDS_WITHIN)
    assert done, f"it goes on: {task.get_stack()}"
    assert task.cancelled() or isinstance(task.exception(), ExceptionGroup)


async def test_who_is_cancelled_while_leaving_leaves_nothing_behind(registry: Registry, announcer: Announcer) -> None:
    leaving = asyncio.Event()

    async def come_and_go() -> None:
        async with registry.register("orders", port=80), registry.directory("orders", "payments"):
            leaving.set()

    def heard() -> list[str]:
        """Subjects; without the inboxes, which are the readers' business."""
        subscriptions = registry.broker._client._subs.values()
        return [one.subject for one in subscriptions if one.subject.startswith("adsum.")]

    await come_and_go()  # brings the registry's own
    before = heard()
    for turns in range(40):
        leaving.clear()
        task = asyncio.create_task(come_and_go())
        await leaving.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=ENDS_WITHIN)
        assert task.done()
        assert heard() == before, turns
