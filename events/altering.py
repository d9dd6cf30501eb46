"""What only an operator's commands do to a stream: changing its settings, deleting.

Services and adsumd do none of this, and need no right to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nats.js.api import ConsumerInfo, StreamInfo

from .broker import Broker

__all__ = ["change_stream", "delete_stream", "delete_subject", "look_at_consumer"]


async def change_stream(broker: Broker, stream: str, change: Callable[[dict[str, Any]], None]) -> StreamInfo:
    """Change settings: `change` gets them as the broker spells them now, and alters what it wants to.

    Raises BrokerRefused, BrokerUnavailable: then it may have been done or not; look.
    """
    return await broker.altering(f"change stream {stream}", stream, lambda js: js.change(stream, change))


async def look_at_consumer(broker: Broker, stream: str, consumer: str) -> ConsumerInfo:
    """How a consumer is, and which servers have it. Raises BrokerRefused, BrokerUnavailable."""
    doing = f"look at consumer {consumer} of {stream}"
    return await broker.altering(doing, stream, lambda js: js.consumer_info(stream, consumer))


async def delete_subject(broker: Broker, stream: str, subject: str) -> None:
    """Delete all messages of a subject; their sequences are not given out again.

    Raises BrokerRefused, BrokerUnavailable.
    """
    doing = f"delete {subject} of {stream}"
    await broker.altering(doing, stream, lambda js: js.purge_stream(stream, subject=subject))


async def delete_stream(broker: Broker, stream: str) -> None:
    """Delete a stream with all it holds. Raises BrokerRefused, BrokerUnavailable."""
    await broker.altering(f"delete stream {stream}", stream, lambda js: js.delete_stream(stream))
