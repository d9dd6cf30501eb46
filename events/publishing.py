"""What was said to streams and asked of them without waiting, and the answers that are to come.

nats-py has such a thing for what is published (`publish_async`) that costs a task and a write to the socket for each
message, three times as much as all else about it, raises a refusal in its own reader, and knows no batches; and a
request for a stored message costs four times as much there.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import RawStreamMsg

from .driver import Driver
from .errors import BrokerUnavailable, Unacknowledged
from .translating import ODD_ANSWER, ours
from .wire import Heard, headers_of

__all__ = ["Publishing", "acknowledged"]

T = TypeVar("T")

MOST_WAITING = 4000
"""Messages on their way at a time; the broker itself lets no more than 10,000 wait, for a stream or for its own API."""
STALL_LIMIT = 5.0
_NOBODY = "503"
_NOT_FOUND = 404


async def acknowledged(sequence: asyncio.Future[int], within: float) -> int:
    """Wait for an acknowledgement so many seconds. Raises as the future does, or Unacknowledged."""
    try:
        await asyncio.wait([sequence], timeout=within)
    except asyncio.CancelledError:
        sequence.cancel()  # else it keeps its place for as long as no answer comes
        raise
    if not sequence.done():
        sequence.cancel()
        raise Unacknowledged(f"no acknowledgement within {within:g} s")
    return sequence.result()


class _Waiting(NamedTuple, Generic[T]):
    doing: str
    unanswered: type[BrokerUnavailable]
    read: Callable[[Heard], T]
    answer: asyncio.Future[T]


class _Room:
    """So many places. asyncio's semaphore passes over all whom it woke before with each one more: thousands here."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._queue: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Take a place, wait for one at most STALL_LIMIT seconds. Raises TimeoutError."""
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(STALL_LIMIT):
                await turn
        except BaseException:
            if not turn.cancel() and not turn.cancelled():  # both came at once
                self.give_back()
            raise

    def give_back(self) -> None:
        """The next one in the queue has it."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Publishing:
    """Of one connection."""

    def __init__(self, client: Driver) -> None:
        self._client = client
        self._waiting: dict[str, _Waiting[Any]] = {}
        self._room = _Room(MOST_WAITING)
        self._inbox = ""
        self._last = 0

    async def send(self, subject: str, data: bytes, headers: dict[str, str], count: int = 1) -> asyncio.Future[int]:
        """Publish; `count` messages are acknowledged by its answer. Raises the driver's errors if it cannot be sent.

        The future gives the sequence that was stored, or raises as `Broker.store` does.
        """
        read = partial(_sequence_in, count=count)
        return await self._send(subject, data, headers, f"publish to {subject}", Unacknowledged, read)

    async def ask(self, stream: str, which: dict[str, int | str]) -> asyncio.Future[RawStreamMsg | None]:
        """Ask the leader of a stream for one message. Raises likewise; the future gives None if there is none."""
        subject, question = f"$JS.API.STREAM.MSG.GET.{stream}", msgspec.json.encode(which)
        return await self._send(subject, question, None, f"read stream {stream}", BrokerUnavailable, _message_in)

    async def _send(
        self,
        subject: str,
        data: bytes,
        headers: dict[str, str] | None,
        doing: str,
        unanswered: type[BrokerUnavailable],
        read: Callable[[Heard], T],
    ) -> asyncio.Future[T]:
        if not self._inbox:
            await self._listen()
        await self._room.take()
        self._last += 1
        token = str(self._last)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[token] = _Waiting(doing, unanswered, read, answer)
        answer.add_done_callback(lambda _: self._forget(token))
        try:
            await self._client.say(subject, data, self._inbox + token, headers)
        except BaseException:
            answer.cancel()
            raise
        return answer

    async def send_together(self, messages: Sequence[tuple[str, bytes, dict[str, str]]]) -> asyncio.Future[int]:
        """Publish messages as one batch, stored all or none, in order and with nothing between; the last sequence."""
        batch = uuid.uuid4().hex
        *others, (subject, data, headers) = messages
        for at, (each, content, conditions) in enumerate(others, start=1):
            marked = conditions | {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(at)}
            await self._client.say(each, content, headers=marked)
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
        if waiting is None or waiting.answer.done():
            return
        try:
            waiting.answer.set_result(waiting.read(msg))
        except (nats.js.errors.Error, msgspec.MsgspecError, *ODD_ANSWER) as error:
            _fail(waiting, error)

    def _forget(self, token: str) -> None:
        del self._waiting[token]
        self._room.give_back()


def _sequence_in(answer: Heard, count: int) -> int:
    """The sequence that an answer acknowledges. Raises the driver's errors for a refusal."""
    _check_somebody(answer)
    told: dict[str, Any] = msgspec.json.decode(answer.data)
    if "error" in told:
        raise nats.js.errors.APIError.from_error(told["error"])
    if told.get("count", 1) != count:
        raise ValueError(f"{count} messages were acknowledged as {told}")
    return int(told["seq"])


class _Message(msgspec.Struct, gc=False):
    subject: str
    seq: int
    time: datetime
    data: bytes = b""
    hdrs: bytes = b""


class _Answer(msgspec.Struct):
    message: _Message | None = None
    error: dict[str, Any] | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


def _message_in(answer: Heard) -> RawStreamMsg | None:
    """The message that was asked for, its headers read as the broker reads them. Raises likewise."""
    _check_somebody(answer)
    told = _ANSWER.decode(answer.data)
    if told.error is not None and told.error.get("code") == _NOT_FOUND:
        return None
    if told.error is not None:
        raise nats.js.errors.APIError.from_error(told.error)
    if told.message is None:
        raise ValueError("neither a message nor an error")
    subject, seq, time, data, block = msgspec.structs.astuple(told.message)
    return RawStreamMsg(subject=subject, seq=seq, time=time, data=data, headers=headers_of(block))


def _check_somebody(answer: Heard) -> None:
    if answer.block and answer.headers.get("Status") == _NOBODY:
        raise nats.js.errors.NoStreamResponseError


def _fail(waiting: _Waiting[Any], error: Exception) -> None:
    if waiting.answer.done():
        return
    read = ValueError(str(error)) if isinstance(error, msgspec.MsgspecError) else error
    told = ours(read, waiting.doing, waiting.unanswered) or waiting.unanswered(f"{waiting.doing}: {error!r}")
    told.__cause__ = error
    waiting.answer.set_exception(told)
