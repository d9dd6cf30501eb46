"""nats-py, and what adsum does differently: options, reading and writing, what becomes of a connection.

With `broker`, `publishing`, `translating` and `wire` this is all that relies on more of the driver than its types.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, cast

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import StreamInfo

from .settings import BrokerSettings, check_servers, readable, tls_context
from .wire import Heard, Parser, Receiving, headers_of, publication, text_of

__all__ = ["Driver", "JetStream", "ended_within", "options"]

ASK_AGAIN_AFTER = 10.0
"""Seconds after which a subscription that was refused is asked for once more."""
PENDING_LIMIT = 1 << 20
"""Bytes not yet handed to the socket from which on whoever publishes waits with the driver."""
_REFUSED_SUBSCRIPTION = re.compile(r'subscription to "([^"]+)"')

log = logging.getLogger("adsum.broker")


async def _nobody(msg: Msg) -> None:
    """What a subscription has for a callback whose messages never reach the driver's queue."""


class Driver(Client):
    """nats-py, but for what is done here, most of which left a process deaf that believed itself connected.

    It closes for good when the server says an error to a connection that stands (its credentials expired or were taken
    back, too many connections): this one tries again, like after any other loss. The answer to a ping whose sender
    was cancelled or timed out ends its read loop: here it is let go. And a read loop that ends, for whatever reason,
    while the connection stands is a lost connection. And the socket of a handshake that failed is closed at once.
    A message whose subject or headers it cannot read ends its read loop, and comes again: see `wire`. And where an
    attempt to reconnect fails in a way that the driver does not expect (a credentials file that is being written, a
    socket that uvloop has closed), the task of it ends without a word: here the next attempt follows. And whoever is
    connecting when it is closed may lose the cancellation (see `Translated`) and connect after all, for good:
    here nothing connects any more once it is `leaving`. And a subscription that the server takes back is never asked
    for again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ps = Parser(self)
        self.hearing: dict[int, Callable[[Heard], None]] = {}
        self.leaving = False
        self._writing: asyncio.Handle | None = None
        self._complaint: asyncio.Future[None] | None = None

    async def listen(self, subject: str, hear: Callable[[Heard], None]) -> Subscription:
        """Subscribe, and call a plain function as each message is read: without a queue and a task between.

        What it raises goes where the errors of other callbacks go.
        """
        next_id = self._sid + 1
        self.hearing[next_id] = hear  # before the first message can come
        try:
            return await self.subscribe(subject, cb=_nobody)
        except BaseException:
            self.hearing.pop(next_id, None)
            raise

    async def say(self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Publish. The driver's own way costs four times as much; it is taken where there is anything to refuse."""
        message = publication(subject, data, reply, headers or {})
        if message is not None and len(message) - message.index(b"\n") - 3 > self._max_payload:
            raise nats.errors.MaxPayloadError  # the headers count too, and the server ends the connection for it
        while self._pending_data_size >= PENDING_LIMIT and self._status == Client.CONNECTED:
            await self._written()
        if message is not None and self._status == Client.CONNECTED:
            await self._send_command(message)
            await self._flush_pending()
        else:
            await self.publish(subject, data, reply=reply, headers=dict(headers) if headers else None)

    async def queue_up(self, subject: str, callback: Callable[[Msg], Awaitable[None]], queue: str) -> Subscription:
        """Subscribe, without a limit of messages that wait for the callback."""
        return await self.subscribe(subject, queue=queue, cb=callback, pending_msgs_limit=0, pending_bytes_limit=0)

    async def in_force(self, subscribe: Callable[[], Awaitable[Subscription]], limit: int) -> Subscription:
        """Subscribe, and wait until the server knows of it, at most `limit` seconds."""
        subscription = await subscribe()
        try:
            await self.flush(limit)
        except BaseException:
            with suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()
            raise
        return subscription

    async def deliver(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """Hand a message to the driver's own subscription."""
        await self._process_msg(sid, subject, reply, data, headers)

    def failed(self, error: Exception) -> None:
        """What was to hear a message raised."""
        self._complaint = asyncio.ensure_future(self._error_cb(error))

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self.hearing.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        return headers_of(headers) if headers else None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        return self.msg_class(
            subject=text_of(subject), reply=text_of(reply), data=data, headers=headers, _client=self, _sid=sid
        )

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg.lower():
            await super()._process_err(err_msg)
            return
        error = nats.errors.Error(f"nats: {err_msg}")
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _connect_to_server(self, s: Any) -> None:
        self._heed_leaving()
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:  # of a try that broke off after the handshake
                task.cancel()
        self._drop()
        await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        try:
            self._heed_leaving()
            await super()._process_connect_init()
            self._heed_leaving()
        except BaseException:
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # the driver's own
            raise

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _attempt_reconnect(self) -> None:
        self._drop()
        while not self.is_closed:
            try:
                await super()._attempt_reconnect()
                return
            except Exception as error:
                log.debug("an attempt to reconnect broke off", exc_info=True)
                self._abort()
                self._transport = None
                self._status = Client.RECONNECTING
                await self._error_cb(error)
                await asyncio.sleep(self.options["reconnect_time_wait"])

    def ask_again(self, refusal: str) -> None:
        """Subscribe once more, in a while, to what the server refused: it does not tell when it would allow it again.

        A server that reads other permissions takes subscriptions back from a connection that stands, for good.
        """
        refused = _REFUSED_SUBSCRIPTION.search(refusal.lower())
        subject = refused[1] if refused else ""
        for subscription in self._subs.values():
            if subscription.subject.lower() == subject:
                asyncio.get_running_loop().call_later(ASK_AGAIN_AFTER, self._subscribe_again, subscription)

    def _subscribe_again(self, subscription: Subscription) -> None:
        if self.is_connected and self._subs.get(subscription._id) is subscription:
            asking = asyncio.ensure_future(self._send_subscribe(subscription))
            asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())

    def _heed_leaving(self) -> None:
        if self.leaving:
            raise asyncio.CancelledError

    def abandon_requests(self) -> None:
        """No answer comes any more to what was asked over a connection that is lost: let nobody wait for its time."""
        for future in list(self._resp_map.values()):
            if not future.done():
                future.set_exception(nats.errors.TimeoutError())

    def give_up(self) -> None:
        """Drop the socket as it is, and what is unsent."""
        self._forget_unsent()
        self._abort()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        try:
            await super()._close(status, do_cbs)
        finally:
            self._let_go()

    def _drop(self) -> None:
        """This connection is over: nothing of it goes into the next one, but what is unsent where that is kept."""
        self._abort()
        if self._max_pending_size <= 0:
            self._forget_unsent()
        self._let_go()
        self._ps.reset()

    def _forget_unsent(self) -> None:
        self._pending, self._pending_data_size = [], 0

    def _abort(self) -> None:
        """Drop the socket: closing it politely waits for a server that may stand still to take what is written."""
        socket = self._socket()
        if socket is not None:
            socket.abort()

    def _socket(self) -> asyncio.WriteTransport | None:
        writer: asyncio.StreamWriter | None = getattr(self._transport, "_io_writer", None)  # a websocket has none
        return writer.transport if writer is not None else None

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """Write what was said in this turn of the loop at its end, together.

        The driver has a task for that, woken through a queue and a future. Where the socket is full, it waits for it;
        woken once, it writes all there is. What is said to a socket that is gone is kept for the next one.
        """
        socket = self._socket()
        if force_flush or socket is None or (not socket.is_closing() and socket.get_write_buffer_size()):
            if force_flush or self._wakings.empty():
                await super()._flush_pending(force_flush)
        elif self._writing is None:
            self._writing = asyncio.get_running_loop().call_soon(self._write_pending)

    def _write_pending(self) -> None:
        self._writing = None
        socket = self._socket()
        if not self.is_connected or self._transport is None or (socket is not None and socket.is_closing()):
            return
        said, self._pending, self._pending_data_size = self._pending, [], 0  # the driver counts pings among the bytes
        try:
            self._transport.writelines(said)
        except (OSError, RuntimeError):  # the socket is gone, and the read loop about to notice
            self._pending, self._pending_data_size = said, sum(map(len, said))

    async def _written(self) -> None:
        """Wait until the driver's task has written what is said so far, or the connection is lost or closed."""
        written = asyncio.get_running_loop().create_future()
        self._wakings.put_nowait(written)
        await written

    def _let_go(self) -> None:
        """Nothing more is written to this connection: let nobody wait for it."""
        while self._flush_queue is not None and not self._flush_queue.empty():
            written = self._flush_queue.get_nowait()
            if not written.done():
                written.set_result(None)

    @property
    def _wakings(self) -> asyncio.Queue[asyncio.Future[Any]]:
        assert self._flush_queue is not None, "not connected yet"
        return self._flush_queue

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """A ping is written at once: what was said before it has to come before it."""
        self._write_pending()
        await super()._send_ping(future)

    async def _read_loop(self) -> None:
        socket = self._socket()
        if socket is not None:
            reader = cast(asyncio.Protocol, socket.get_protocol())
            socket.set_protocol(Receiving(reader, cast(Parser, self._ps).heard))
        await super()._read_loop()
        if self._status == Client.CONNECTED:
            error = nats.errors.Error("nats: reading from the server ended")
            await self._error_cb(error)
            await self._process_op_err(error)


class JetStream(JetStreamContext):
    """nats-py, but that it changes a stream without losing what it does not know."""

    async def change(self, stream: str, change: Callable[[dict[str, Any]], None]) -> StreamInfo:
        """Change the settings of a stream, as the broker spells them: what the driver does not know stays as it is."""
        info = await self._api_request(f"{self._prefix}.STREAM.INFO.{stream}", b"", timeout=self._timeout)
        settings = info["config"]
        change(settings)
        asked = f"{self._prefix}.STREAM.UPDATE.{stream}"
        answer = await self._api_request(asked, json.dumps(settings).encode(), timeout=self._timeout)
        changed: StreamInfo = StreamInfo.from_response(answer)
        return changed


def options(settings: BrokerSettings, name: str, ping: float, keep_unsent: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "servers": check_servers(settings),
        "name": name,
        "max_reconnect_attempts": -1,  # the default gives up after 60 and the process would be invisible for good
        "reconnect_time_wait": random.uniform(0.3, 0.8),  # spread over the fleet, so that no herd comes back at once
        "connect_timeout": 3,
        "ping_interval": ping,  # the default notices a dead server after four minutes
        "max_outstanding_pings": 2,
        "flusher_queue_size": 0,  # no limit: at the default the ping waits too, and a dead server is never noticed
    }
    if not keep_unsent:
        chosen["pending_size"] = 0
    given = {"user": settings.user, "password": settings.password, "token": settings.token}
    chosen |= {key: value for key, value in given.items() if value is not None}
    if settings.credentials:
        chosen["user_credentials"] = readable("credentials", settings.credentials)
    if settings.nkey:
        chosen["nkeys_seed"] = readable("nkey", settings.nkey)
    context = tls_context(settings)
    if context is not None:
        chosen["tls"] = context
        if settings.tls_hostname:
            chosen["tls_hostname"] = settings.tls_hostname
    return chosen


async def ended_within(doing: Coroutine[Any, Any, object] | asyncio.Task[None], seconds: float) -> bool:
    """Whether it ended well within this time; if it has not ended by then, it is cancelled and left alone."""
    task = asyncio.ensure_future(doing)
    task.add_done_callback(_note)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        task.cancel()
    return task.done() and not task.cancelled() and task.exception() is None


def _note(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.debug("close: %r", task.exception())
