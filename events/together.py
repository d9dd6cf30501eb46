"""The log as all of one connection speak to it: what they say and ask at the same time goes together.

Many events at once go as atomic batches, a write and an acknowledgement for up to a thousand: one by one each waits for
the disk by itself. Each keeps its own condition, and its author never notices the others: where the batch is not taken
(one condition does not hold, no batches are allowed) each is said by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from . import subjects
from .broker import REQUEST_TIMEOUT, Broker
from .codec import encode
from .errors import BrokerRefused, BrokerUnavailable, Unacknowledged
from .lifecycle import Event
from .log import conditions, say
from .names import Key
from .publishing import acknowledged
from .streams import EVENTS, read_epoch

__all__ = ["SharedLog"]

MOST = 1000
"""Events a batch, and bytes: the broker's limit, and half of what the driver keeps while it reconnects."""
MOST_BYTES = 1 << 20
AT_ONCE = 4
"""Batches on their way; the broker takes 50 a stream."""


class _Word(NamedTuple):
    key: Key
    data: bytes
    headers: dict[str, str]
    stored: asyncio.Future[int | None]


class SharedLog:
    """Use it from one event loop. It has tasks of its own only while somebody waits for it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: deque[_Word] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._asking: asyncio.Task[str] | None = None

    async def say(self, key: Key, event: Event, after: int) -> int:
        """`log.say`: the sequence of an event that was stored on a condition. Raises the same."""
        stored: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Word(key, encode(event), conditions(event, after), stored))
        if len(self._sending) < AT_ONCE:
            sending = asyncio.create_task(self._send(), name="log: say together")
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        sequence = await stored
        return await say(self._broker, key, event, after) if sequence is None else sequence

    async def epoch(self) -> str:
        """`read_epoch`, asked once for all who want it at the same time, never before one of them wanted it."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_epoch(), name="log: epoch")
            self._asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        return await asyncio.shield(self._asking)

    async def _ask_epoch(self) -> str:
        await asyncio.sleep(0)  # for all who are about to ask
        self._asking = None
        return await read_epoch(self._broker)

    async def _send(self) -> None:
        while batch := self._take():
            await _store(self._broker, batch)

    def _take(self) -> list[_Word]:
        """What goes together: no two of one instance, for each has a condition."""
        batch: dict[Key, _Word] = {}
        size = 0
        while self._waiting and len(batch) < MOST and size < MOST_BYTES and self._waiting[0].key not in batch:
            word = self._waiting.popleft()
            if not word.stored.done():  # its author was cancelled
                batch[word.key] = word
                size += len(word.data)
        return list(batch.values())


async def _store(broker: Broker, batch: list[_Word]) -> None:
    """Tell each its sequence, None if it is to be said by itself, Unacknowledged if all may be stored all the same."""
    if len(batch) == 1:
        _tell(batch, None)
        return
    try:
        messages = [(subjects.event(word.key), word.data, word.headers) for word in batch]
        last = await acknowledged(await broker.store_together(EVENTS, messages), REQUEST_TIMEOUT)
    except Unacknowledged as error:
        refused = [word for word in batch if broker.refusal(subjects.event(word.key))]
        _tell(batch, None if refused else error)  # without a right to the last one, nobody ever answers
    except (BrokerUnavailable, BrokerRefused):
        _tell(batch, None)
    except BaseException:
        for word in batch:
            word.stored.cancel()
        raise
    else:
        _tell(batch, last)


def _tell(batch: list[_Word], result: int | Unacknowledged | None) -> None:
    for behind, word in enumerate(reversed(batch)):
        if word.stored.done():
            continue
        if isinstance(result, Unacknowledged):
            word.stored.set_exception(Unacknowledged(str(result)))
        else:
            word.stored.set_result(None if result is None else result - behind)
