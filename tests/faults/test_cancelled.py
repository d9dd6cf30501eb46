"""Whoever registers and follows is cancelled, at any moment and more than once: nothing of it stays in the process."""

from __future__ import annotations

import asyncio

from adsum.clients import connect
from adsum.events.broker import Broker
from adsum.projector.embedded import EmbeddedBroker
from tests.waiting import until

MOMENTS = 40
"""Turns of the event loop after which it is cancelled once more: all of them within leaving the blocks."""


async def test_cancelled_again_while_it_leaves_a_process_keeps_no_connection(
    nats: EmbeddedBroker, broker: Broker
) -> None:
    """A block that is cancelled leaves politely; cancelled again meanwhile it leaves at once, and what is left to do is
    done behind: no task stays, and so no connection that would be kept up for ever."""
    await broker.stream_info("ADSUM_EVENTS")
    before = asyncio.all_tasks()

    async def live(here: asyncio.Event) -> None:
        async with (
            connect(nats.url) as registry,
            registry.register("orders", port=8080),
            registry.directory("orders", wait=0),
        ):
            here.set()
            await asyncio.Event().wait()

    for moment in range(MOMENTS):
        here = asyncio.Event()
        life = asyncio.create_task(live(here))
        await here.wait()
        life.cancel()
        for _ in range(moment):
            await asyncio.sleep(0)
        life.cancel()
        await asyncio.wait([life])
        assert life.cancelled()
    await until(lambda: {task.get_name() for task in asyncio.all_tasks() - before}, set().__eq__)
