"""The epochs that others may still know: a new one has to be above all of them."""

from __future__ import annotations

from .broker import Broker
from .codec import decode_topology
from .errors import Undecodable
from .reader import StreamReader
from .streams import TOPOLOGY

__all__ = ["announced_epochs"]


async def announced_epochs(broker: Broker) -> set[str]:
    """Every epoch that the states in ADSUM_TOPOLOGY bear. Raises ReaderLost, BrokerUnavailable, BrokerRefused."""
    seen: set[str] = set()
    if await broker.stream_info(TOPOLOGY) is not None:
        async with StreamReader(broker, TOPOLOGY) as reader:
            while messages := await reader.to_end():
                for message in messages:
                    try:
                        seen.add(decode_topology(message.data).epoch)
                    except Undecodable:
                        continue
    return seen
