"""Reading the snapshot of the topology, a few directories of one connection at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence

from adsum.events.broker import Broker
from adsum.events.reader import Message, StreamReader
from adsum.events.signals import Topology
from adsum.events.streams import TOPOLOGY

from .states import read_state

__all__ = ["Loading"]

AT_ONCE = 8
"""Snapshots read at the same time over one connection: each is a consumer of the broker's for a moment, and a
thousand directories that reconnect at once would reach the broker's limit of consumers."""


class Loading:
    """One for all directories of a registry."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read(self, begin: Callable[[], Sequence[str]], take: Callable[[Iterable[Topology]], None]) -> None:
        """`begin` when it is this one's turn (it gives the subjects to read), then `take` everything stored, in parts.

        Raises ReaderLost, BrokerUnavailable, BrokerRefused: then what was taken is not whole.
        """
        async with self._slots, StreamReader(self._broker, TOPOLOGY, begin()) as reader:
            while batch := await reader.to_end():
                take(_decoded(batch))


def _decoded(batch: list[Message]) -> Iterator[Topology]:
    for message in batch:
        told = read_state(message.subject, message.data)
        if told is not None:
            yield told
