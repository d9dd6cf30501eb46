"""Listening on a subject, and noticing when the server refuses that: it says so only aside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from nats.aio.msg import Msg

from adsum.events.broker import Broker
from adsum.events.errors import BrokerRefused

__all__ = ["listen"]


async def listen(
    broker: Broker, block: AsyncExitStack, subject: str, hear: Callable[[Msg], Awaitable[None]], queue: str = ""
) -> None:
    """Subscribe for as long as `block` lasts. Raises BrokerUnavailable, BrokerRefused."""
    broker.refusal(subject)  # what was refused before is no matter now
    subscription = await broker.subscribe(subject, hear, queue)
    block.push_async_callback(broker.unsubscribe, subscription)
    refused = broker.refusal(subject)
    if refused is not None:
        raise BrokerRefused(f"listen to {subject}: {refused}")
