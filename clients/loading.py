"""What the directories of one connection ask the broker: the log's epoch, once for all of them, and the snapshot of the
topology, a few at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from adsum.events.broker import Broker
from adsum.events.reader import Message, StreamReader
from adsum.events.signals import Topology
from adsum.events.streams import TOPOLOGY, read_epoch

from .states import read_state

__all__ = ["ASKED_EVERY", "Loading"]

AT_ONCE = 8
"""Snapshots read at the same time over one connection: each is a consumer of the broker's for a moment, and a
thousand directories that reconnect at once would reach the broker's limit of consumers."""
ASKED_EVERY = 2.0
"""Seconds for which an answer holds on the same connection, whoever hints at what: as often as marks are said."""


class Loading:
    """One for all directories of a registry."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._asking = asyncio.Lock()
        self._epoch, self._asked_at, self._asked_on = "", -math.inf, 0

    async def epoch(self) -> str:
        """The log's epoch, by its own word of the last seconds.

        Whoever may publish can speak of any epoch as often as they like, so hints are answered without asking again
        until ASKED_EVERY has passed. Nothing is lost by that: the leader of another log repeats its own with each mark.
        Raises BrokerUnavailable, BrokerRefused, StreamMismatch.
        """
        async with self._asking:
            now, connection = asyncio.get_running_loop().time(), self._broker.connects
            if connection != self._asked_on or now - self._asked_at >= ASKED_EVERY:
                self._epoch = await read_epoch(self._broker)
                self._asked_on, self._asked_at = connection, now
            return self._epoch

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
