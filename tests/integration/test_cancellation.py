"""A task that is cancelled ends, at whatever moment and whatever the driver makes of it.

nats-py waits with `asyncio.wait_for`, which up to Python 3.11 gives the answer instead of the cancellation where both
come at once, and one of its calls makes another error of it. A daemon then never ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY

TRIES = 400


async def _ask(broker: Broker) -> None:
    await broker.stream_info(EVENTS)


async def _look(broker: Broker) -> None:
    await broker.last_message(EVENTS, "adsum.v1.default.event.orders.a")


async def _store(broker: Broker) -> None:
    await broker.store(BEATS, "adsum.tick", b"{}", {})


async def _store_later(broker: Broker) -> None:
    future = await broker.store_later(TOPOLOGY, "adsum.v1.default.topology.orders.a", b"{}", {})
    await future


async def _flush(broker: Broker) -> None:
    await broker.flush()


@pytest.mark.parametrize("call", [_ask, _look, _store, _store_later, _flush])
async def test_cancellation_is_never_lost(broker: Broker, call: Callable[[Broker], Awaitable[None]]) -> None:
    async def for_ever() -> None:
        while True:
            try:
                await call(broker)
            except BrokerUnavailable:
                continue

    for _ in range(TRIES):
        task = asyncio.create_task(for_ever())
        for _ in range(random.randrange(60)):
            await asyncio.sleep(0)
        await asyncio.sleep(random.uniform(0, 0.001))
        task.cancel()
        _, running = await asyncio.wait([task], timeout=5)
        assert not running, "the cancellation was lost"
        assert task.cancelled()
