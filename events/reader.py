"""Reading a stream in order: a push consumer whose every gap is noticed.

A reader never repairs itself. When anything may have been missed (a gap in the delivery, three seconds without
the broker's own heartbeat, a reconnect) it says ReaderLost, and its owner opens another one from where the owner
knows itself to be: the log's reader after its checkpoint, the others from the beginning, since the sequences of
their streams prove nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import NamedTuple

from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RawStreamMsg

from .broker import Broker
from .errors import AdsumError
from .notes import TIME_HEADER, notes_of, time_of
from .streams import EVENTS
from .wire import Heard

__all__ = ["Message", "ReaderLost", "StreamReader"]

IDLE_HEARTBEAT = 1.0
SILENCE_LIMIT = 3.0
_ABANDONED_AFTER = 10.0
CATCH_UP = 10.0
"""Seconds without a message, though some are to come, after which a copy is given up. A server that just came back
counts wrongly what is still to come."""
_STORED = "$JS.ACK."
_CLAIM = TIME_HEADER.encode()


class ReaderLost(AdsumError):
    """The reader may have missed something; open another one."""


class Message(NamedTuple):
    """A stored message. `time` is the broker's clock, in seconds since 1970, to the microsecond that databases keep.

    Of an imported message of the log it is the clock of the broker that stored it at first.
    """

    subject: str
    data: bytes
    sequence: int
    time: float


class _Imported(NamedTuple):
    """One that claims to have been said at another time than the one at which this broker stored it."""

    message: Message
    headers: dict[str, str]


class StreamReader:
    """An async context manager over one stream: everything from `start` on, in order, then whatever comes.

    In a cluster any copy of the stream may be the one that is read, also one that is behind. Of the log, whose end
    others act on, that is waited for: `to_end` goes to what the leader's copy held when the reader was opened.

    `filters` are subjects; `start` the first sequence wanted (1: from the beginning, which for a stream of last
    messages is the last of each subject), or `stored_from` the time of the broker's clock from which on (seconds since
    1970). `behind` tells how many stored messages are still to be delivered.
    """

    def __init__(
        self,
        broker: Broker,
        stream: str,
        filters: Sequence[str] = (),
        start: int = 1,
        stored_from: float | None = None,
    ) -> None:
        self._broker, self._stream, self._filters, self._start = broker, stream, list(filters), start
        self._stored_from = datetime.fromtimestamp(stored_from, UTC) if stored_from is not None else None
        self._waiting: deque[Message | _Imported | str] = deque()
        self._imported = 0
        self._arrived = asyncio.Event()
        self._delivered = 0
        self._last = 0
        """The last sequence that was delivered."""
        self._end: int | None = None
        """The last sequence that is wanted of what was stored, as the leader of the stream told; None: not asked."""
        self._lost = ""
        self._subscription: Subscription | None = None
        self._consumer = ""
        self._watch: asyncio.TimerHandle | None = None
        self._forget_connect: Callable[[], None] = lambda: None
        self.behind = 0

    async def __aenter__(self) -> StreamReader:
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        inbox = self._broker.inbox()
        self._subscription = await self._broker.listen(inbox, self._take)
        self._forget_connect = self._broker.on_connect(lambda: self._lose("the connection was made anew"))
        try:
            info = await self._broker.create_consumer(self._stream, self._config(inbox))
            if self._stream == EVENTS:  # the one whose messages may have been imported
                await self._look_at_log()
        except BaseException:
            await self._leave()
            raise
        self._consumer = str(info.name)
        if not self._delivered:
            self.behind = info.num_pending or 0
        self._heard_at = self._moved_at = self._loop.time()
        self._watch = self._loop.call_later(IDLE_HEARTBEAT, self._check)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._consumer and self._broker.connected and kind is not ReaderLost:
                await self._broker.delete_consumer(self._stream, self._consumer)
        finally:
            await self._leave()

    async def _look_at_log(self) -> None:
        """What of the log was imported, and where it ends for those who read it from a copy."""
        info = await self._broker.stream_info(EVENTS)
        if info is None:
            return
        self._imported = notes_of(info).imported
        if (info.config.num_replicas or 1) == 1:
            return
        self._end = 0
        for subject in self._filters or [">"]:
            last = await self._broker.last_message(EVENTS, subject)
            if last is not None and self._begins_by(last):
                self._end = max(self._end, last.seq or 0)

    def _begins_by(self, last: RawStreamMsg) -> bool:
        """Whether a message is one of those that are wanted."""
        if self._stored_from is None:
            return (last.seq or 0) >= self._start
        return isinstance(last.time, datetime) and last.time >= self._stored_from

    async def batch(self, most: int = 1000) -> list[Message]:
        """The next messages, at least one and at most `most`; waits for the first. Raises ReaderLost."""
        while True:
            batch = await self._drain(most)
            if batch:
                return batch
            if self._lost:
                raise ReaderLost(f"reading {self._stream}: {self._lost}")
            self._arrived.clear()
            await self._arrived.wait()

    async def to_end(self, most: int = 1000) -> list[Message]:
        """The next messages of those stored when the reader was opened or since; empty once it is at the end."""
        batch = await self._drain(most)
        if batch or not (self._more or self._lost):
            return batch
        return await self.batch(most)

    @property
    def waiting(self) -> int:
        """How many messages have arrived and were not taken; flow control bounds it."""
        return len(self._waiting)

    @property
    def _more(self) -> bool:
        """Whether messages are to come that were stored already."""
        return self.behind > 0 if self._end is None else self._last < self._end

    async def _drain(self, most: int) -> list[Message]:
        batch: list[Message] = []
        while self._waiting and len(batch) < most:
            item = self._waiting.popleft()
            if isinstance(item, str):  # the broker's flow control waits here until what came before is taken
                await self._broker.publish(item, b"")
            elif isinstance(item, _Imported):
                said = time_of(item.headers, item.message.sequence, item.message.time, self._imported)
                batch.append(item.message._replace(time=said))
            else:
                batch.append(item)
        return batch

    def _take(self, msg: Heard) -> None:
        self._heard_at = self._loop.time()
        if self._lost:
            return
        if not msg.reply.startswith(_STORED):  # whatever a stored message holds, its reply subject is the broker's
            self._take_control(msg)
            return
        sequence, delivered, nanoseconds, pending = _metadata(msg.reply)
        if delivered != self._delivered + 1:
            self._lose(f"message {delivered} came after {self._delivered}")
            return
        self._delivered, self._last = delivered, sequence
        self._moved_at = self._heard_at
        self.behind = pending
        message = Message(msg.subject, msg.data, sequence, round(nanoseconds / 1000) / 1e6)
        claims = _CLAIM in msg.block and TIME_HEADER in msg.headers
        self._waiting.append(_Imported(message, msg.headers) if claims else message)
        self._arrived.set()

    def _take_control(self, msg: Heard) -> None:
        headers = msg.headers
        if headers.get("Status") != "100":
            return
        reply = msg.reply or headers.get("Nats-Consumer-Stalled", "")
        if reply:
            self._waiting.append(reply)
            self._arrived.set()
        last = headers.get("Nats-Last-Consumer")
        if last is not None and int(last) != self._delivered:
            self._lose(f"the broker sent {last} messages, {self._delivered} arrived")

    def _check(self) -> None:
        if self._loop.time() - self._heard_at > SILENCE_LIMIT:
            self._lose(f"nothing from the broker for {SILENCE_LIMIT:g} s")
        elif self._more and not self._waiting and self._loop.time() - self._moved_at > CATCH_UP:
            self._lose(f"messages are to come, and none did for {CATCH_UP:g} s")
        else:
            self._watch = self._loop.call_later(IDLE_HEARTBEAT, self._check)

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._arrived.set()

    async def _leave(self) -> None:
        self._forget_connect()
        if self._watch is not None:
            self._watch.cancel()
        if self._subscription is not None:
            await self._broker.unsubscribe(self._subscription)
            self._subscription = None

    def _config(self, inbox: str) -> ConsumerConfig:
        policy = DeliverPolicy.BY_START_SEQUENCE if self._start > 1 else DeliverPolicy.ALL
        return ConsumerConfig(
            deliver_subject=inbox,
            deliver_policy=policy if self._stored_from is None else DeliverPolicy.BY_START_TIME,
            opt_start_seq=self._start if policy == DeliverPolicy.BY_START_SEQUENCE else None,
            opt_start_time=self._stored_from,
            ack_policy=AckPolicy.NONE,
            filter_subjects=self._filters or None,
            flow_control=True,
            idle_heartbeat=IDLE_HEARTBEAT,
            inactive_threshold=_ABANDONED_AFTER,
            mem_storage=True,
            num_replicas=1,
        )


def _metadata(reply: str) -> tuple[int, int, int, int]:
    """(stream sequence, consumer sequence, nanoseconds, pending) from the reply subject.

    `$JS.ACK.<stream>.<consumer>.<tries>.<seq>.<delivered>.<time>.<pending>`, with domain and account before the
    stream where the broker has a JetStream domain.
    """
    tokens = reply.split(".")
    sequence, delivered, nanoseconds, pending = tokens[5:] if len(tokens) == 9 else tokens[7:11]
    return int(sequence), int(delivered), int(nanoseconds), int(pending)
