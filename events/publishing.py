"""What was published into streams without waiting, and the acknowledgements that are to come.

nats-py has such a thing (`publish_async`) that costs a task and a write to the socket for each message, three times as
much as all else about it, raises a refusal in its own reader, and knows no batches.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import nats.errors
import nats.js.errors

from .driver import ODD_ANSWER, Driver, translated
from .errors import BrokerRefused, BrokerUnavailable, Unacknowledged
from .wire import Heard

__all__ = ["Publishing", "acknowledged"]

MOST_WAITING = 4000
"""Publishes on their way at a time; the broker itself refuses more than 10,000 to a stream."""
STALL_LIMIT = 5.0
_NOBODY = "503"


async def acknowledged(sequence: asyncio.Future[int], within: float) -> int:
    """Wait for an acknowledgement so many seconds. Raises as the future does, or Unacknowledged."""
    await asyncio.wait([sequence], timeout=within)
    if not sequence.done():
        sequence.cancel()
        raise Unacknowledged(f"no acknowledgement within {within:g} s")
    return sequence.result()


class _Waiting(NamedTuple):
    subject: str
    messages: int
    sequence: asyncio.Future[int]


class Publishing:
    """Of one connection. The futures give the sequence that was stored, or raise as `Broker.store` does."""

    def __init__(self, client: Driver) -> None:
        self._client = client
        self._waiting: dict[str, _Waiting] = {}
        self._room = asyncio.Event()
        self._inbox = ""
        self._last = 0

    async def send(self, subject: str, data: bytes, headers: dict[str, str], count: int = 1) -> asyncio.Future[int]:
        """Publish; `count` messages are acknowledged by its answer. Raises the driver's errors if it cannot be sent."""
        if not self._inbox:
            await self._listen()
        while len(self._waiting) >= MOST_WAITING:
            self._room.clear()
            async with asyncio.timeout(STALL_LIMIT):
                await self._room.wait()
        self._last += 1
        token = str(self._last)
        sequence: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Waiting(subject, count, sequence)
        sequence.add_done_callback(lambda _: self._forget(token))
        try:
            await self._client.publish(subject, data, reply=self._inbox + token, headers=headers)
        except BaseException:
            sequence.cancel()
            raise
        return sequence

    async def send_together(self, messages: Sequence[tuple[str, bytes, dict[str, str]]]) -> asyncio.Future[int]:
        """Publish messages as one batch, stored all or none, in order and with nothing between; the last sequence."""
        batch = uuid.uuid4().hex
        *others, (subject, data, headers) = messages
        for at, (each, content, conditions) in enumerate(others, start=1):
            marked = conditions | {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(at)}
            await self._client.publish(each, content, headers=marked)
        last = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(len(messages)), "Nats-Batch-Commit": "1"}
        return await self.send(subject, data, headers | last, len(messages))

    def abandon(self) -> None:
        """No acknowledgement comes any more over a connection that is lost."""
        for waiting in list(self._waiting.values()):
            _fail(waiting, nats.errors.TimeoutError())

    async def _listen(self) -> None:
        self._inbox = f"{self._client.new_inbox()}."
        try:
            await self._client.listen(f"{self._inbox}*", self._hear)
        except BaseException:
            self._inbox = ""
            raise

    def _hear(self, msg: Heard) -> None:
        waiting = self._waiting.get(msg.subject.rpartition(".")[2])
        if waiting is None or waiting.sequence.done():
            return
        try:
            waiting.sequence.set_result(_sequence_in(msg, waiting.messages))
        except (nats.js.errors.Error, msgspec.MsgspecError, *ODD_ANSWER) as error:
            _fail(waiting, error)

    def _forget(self, token: str) -> None:
        del self._waiting[token]
        self._room.set()


def _sequence_in(answer: Heard, count: int) -> int:
    """The sequence that an answer acknowledges. Raises the driver's errors for a refusal."""
    if answer.headers.get("Status") == _NOBODY:
        raise nats.js.errors.NoStreamResponseError
    told: dict[str, Any] = msgspec.json.decode(answer.data)
    if "error" in told:
        raise nats.js.errors.APIError.from_error(told["error"])
    if told.get("count", 1) != count:
        raise ValueError(f"{count} messages were acknowledged as {told}")
    return int(told["seq"])


def _fail(waiting: _Waiting, error: Exception) -> None:
    if waiting.sequence.done():
        return
    try:
        with translated(f"publish to {waiting.subject}", unanswered=Unacknowledged):
            raise ValueError(str(error)) if isinstance(error, msgspec.MsgspecError) else error
    except (BrokerUnavailable, BrokerRefused) as ours:
        waiting.sequence.set_exception(ours)
