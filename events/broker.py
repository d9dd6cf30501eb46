"""The connection to NATS, as the rest of adsum has it. What it stands on is `driver`.

It reconnects for ever, is never taken down by a callback, and translates the driver's errors into ours. What the
options are for is in `driver.options`; why each differs from the driver's default is said there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import ConsumerConfig, ConsumerInfo, RawStreamMsg, StreamConfig, StreamInfo

from .driver import Driver, JetStream, ended_within, options
from .errors import BrokerRefused, BrokerUnavailable, NobodyAnswers, StreamMissing, Unacknowledged
from .outage import Outage
from .publishing import Publishing, acknowledged
from .settings import DEFAULT_URL, BrokerSettings
from .translating import Translated, WrongLastSequence
from .wire import Heard

__all__ = ["DEFAULT_URL", "Broker", "BrokerSettings", "WrongLastSequence"]

T = TypeVar("T")

REQUEST_TIMEOUT = 5.0
MISSING_TIMEOUT = 0.5

_REMEDY = "start it, or mend the network to it; all goes on by itself once it answers"

log = logging.getLogger("adsum.broker")


class Broker:
    """One connection to the broker, for as long as its owner lives.

    `Broker.open` returns at once and connects behind; `await broker.ready(seconds)` waits. Use it from one event
    loop. `on_connect` callbacks are plain functions, called after every connect and reconnect; they must not raise.
    """

    def __init__(self, settings: BrokerSettings, name: str, *, ping: float, keep_unsent: bool) -> None:
        self.settings = settings
        self.name = name
        self.last_error = ""
        self.connects = 0
        self.outage = Outage(log, f"the broker at {settings.shown}", _REMEDY)
        self._options = options(settings, name, ping, keep_unsent)
        self._client = Driver()
        self._js = JetStream(self._client, timeout=REQUEST_TIMEOUT)
        self._publishing = Publishing(self._client)
        self._connected = asyncio.Event()
        self._on_connect: list[Callable[[], None]] = []
        self._refusals: dict[str, str] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closing = False
        self._begun = False
        self._hopeless: BrokerRefused | None = None

    @classmethod
    def open(cls, settings: BrokerSettings, name: str, *, ping: float = 2.0, keep_unsent: bool = True) -> Broker:
        """Begin to connect; give the connection back at once.

        `ping`: seconds between two pings, at most half a heartbeat (two may be outstanding before the connection
        counts as dead). `keep_unsent=False`: a publish while disconnected fails at once and is never sent later.
        Raises InvalidValue if a URL or a file of the settings cannot be used.
        """
        broker = cls(settings, name, ping=ping, keep_unsent=keep_unsent)
        broker._connecting = asyncio.create_task(broker._connect(), name=f"{name}: connect")
        return broker

    async def ready(self, timeout: float) -> None:
        """Wait until connected, at most `timeout` seconds. Raises BrokerUnavailable with the last error.

        Raises BrokerRefused if it cannot ever succeed (a seed that is none, nkeys not installed).
        """
        try:
            async with asyncio.timeout(timeout):
                await self._connected.wait()
        except TimeoutError:
            reason = f": {self.last_error}" if self.last_error else ""
            raise BrokerUnavailable(f"no broker at {self.settings.shown} within {timeout:g} s{reason}") from None
        if self._hopeless is not None:
            raise self._hopeless

    @property
    def connected(self) -> bool:
        """Whether the connection stands, as far as the last pings tell."""
        return self._client.is_connected

    @property
    def url(self) -> str:
        """The server connected to, without credentials; the configured list while there is none."""
        url = self._client.connected_url
        return f"{url.scheme}://{url.hostname}:{url.port}" if url else self.settings.shown

    @property
    def server_version(self) -> str:
        """The version of the server connected to."""
        version = self._client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def local_host(self) -> str | None:
        """This process's address as the broker sees it; None while not connected."""
        return self._client.client_ip if self.connected else None

    def on_connect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each connect and reconnect; gives back a function that ends it."""
        self._on_connect.append(callback)
        return lambda: self._on_connect.remove(callback) if callback in self._on_connect else None

    # ---- core

    @property
    def max_payload(self) -> int:
        """Bytes that the server takes as one message."""
        return int(self._client.max_payload)

    async def publish(
        self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """A core publish: sent, not acknowledged. Raises BrokerUnavailable if it cannot even be sent.

        Waits while much is said already that the server does not take, until it does or the connection is lost.
        """
        with Translated(f"publish to {subject}"):
            await self._client.say(subject, data, reply, headers)

    async def request(self, subject: str, data: bytes, timeout: float = REQUEST_TIMEOUT) -> Msg:
        """Ask whoever listens on `subject`; the first answer.

        Raises NobodyAnswers if nobody listens there, BrokerUnavailable if nobody answered in time, BrokerRefused.
        """
        if not self.connected:
            raise BrokerUnavailable(f"ask {subject}: not connected to {self.settings.shown}")
        with Translated(f"ask {subject}"):
            try:
                return await self._client.request(subject, data, timeout=timeout)
            except nats.errors.NoRespondersError:
                raise NobodyAnswers(f"ask {subject}: nobody answers there") from None
            except nats.errors.TimeoutError:
                self._raise_refusal(subject)
                raise

    async def subscribe(
        self, subject: str, callback: Callable[[Msg], Awaitable[None]], queue: str = ""
    ) -> Subscription:
        """A core subscription that is in force at the server when this returns, and again after each reconnect.

        Of those with the same `queue` one gets each message. It has no limit of pending messages: what floods it is
        bounded by who reads it (see `reader`, `directory`). A server that refuses it says so aside: see `refusal`.
        Raises BrokerUnavailable, also before the connection first stood (the driver forgets what came before that).
        """
        return await self._subscribe(subject, partial(self._client.queue_up, subject, callback, queue))

    async def listen(self, subject: str, hear: Callable[[Heard], None]) -> Subscription:
        """Like `subscribe`, with a plain function that is called as each message is read: soonest, and cheapest."""
        return await self._subscribe(subject, partial(self._client.listen, subject, hear))

    async def _subscribe(self, subject: str, subscribe: Callable[[], Awaitable[Subscription]]) -> Subscription:
        if not self.connected:
            raise BrokerUnavailable(f"subscribe to {subject}: not connected to {self.settings.shown}")
        with Translated(f"subscribe to {subject}"):
            return await self._client.in_force(subscribe, int(REQUEST_TIMEOUT))

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; harmless when the connection has gone."""
        try:
            with Translated(f"unsubscribe from {subscription.subject}"):
                await subscription.unsubscribe()
        except BrokerUnavailable as error:
            log.debug("%s", error)

    async def flush(self) -> None:
        """Wait until the server has taken what was sent before. Raises BrokerUnavailable."""
        with Translated("flush"):
            await self._client.flush(int(REQUEST_TIMEOUT))

    def inbox(self) -> str:
        """A subject of this connection's own."""
        return self._client.new_inbox()

    # ---- JetStream

    async def store(
        self,
        stream: str,
        subject: str,
        data: bytes,
        headers: Mapping[str, str],
        timeout: float = REQUEST_TIMEOUT,
    ) -> int:
        """Publish into a stream and wait for the acknowledgement: the sequence it was stored at.

        Raises WrongLastSequence if its condition did not hold, Unacknowledged if nobody answered (it may be stored
        all the same), BrokerUnavailable if it was not sent or no leader took it, StreamMissing, BrokerRefused.
        `timeout` (seconds) bounds the acknowledgement; before, it waits for its turn as `publish` does.
        """
        sent = await self.store_later(stream, subject, data, headers)
        try:
            return await acknowledged(sent, timeout)
        except NobodyAnswers:
            await self._raise_missing(stream, subject)
            raise
        except Unacknowledged:
            self._raise_refusal(subject)
            raise

    async def store_later(
        self, stream: str, subject: str, data: bytes, headers: Mapping[str, str]
    ) -> asyncio.Future[int]:
        """Publish into a stream without waiting; the future gives the sequence or raises as `store` does.

        The caller bounds the wait: `await asyncio.wait_for(future, seconds)`.
        """
        if not self.connected:
            raise BrokerUnavailable(f"publish to {subject}: not connected to {self.settings.shown}")
        with Translated(f"publish to {subject}"):
            return await self._publishing.send(subject, data, {"Nats-Expected-Stream": stream, **headers})

    async def store_together(
        self, stream: str, messages: Sequence[tuple[str, bytes, Mapping[str, str]]]
    ) -> asyncio.Future[int]:
        """Publish (subject, data, headers) into a stream as one batch, stored all or none, with nothing between.

        The future gives the sequence of the last one or raises as `store` does; after Unacknowledged look at each. The
        stream has to allow it (`allow_atomic`), at most 1,000 at once and no two of one subject that have conditions.
        """
        doing = f"publish {len(messages)} messages into {stream}"
        if not self.connected:
            raise BrokerUnavailable(f"{doing}: not connected to {self.settings.shown}")
        with Translated(doing):
            return await self._publishing.send_together(
                [(subject, data, {"Nats-Expected-Stream": stream, **headers}) for subject, data, headers in messages]
            )

    async def last_message(self, stream: str, subject: str) -> RawStreamMsg | None:
        """The last message of a subject, read through the stream's leader (never from a replica that lags)."""
        return await self._get(stream, last_by_subj=subject)

    async def message_at(self, stream: str, sequence: int) -> RawStreamMsg | None:
        """The message at a sequence, or None if there is none (any more)."""
        return await self._get(stream, seq=sequence)

    async def stream_info(self, stream: str) -> StreamInfo | None:
        """The stream's settings and state; None if it does not exist. Raises BrokerUnavailable if it has no leader."""
        with self._asked(f"look up stream {stream}", stream):
            try:
                info = await self._js.stream_info(stream)
            except nats.js.errors.NotFoundError:
                return None
        if info.cluster is not None and not info.cluster.leader:  # any server answers then, with what it last knew
            raise BrokerUnavailable(f"look up stream {stream}: it has no leader at the moment")
        return info

    async def create_stream(self, config: StreamConfig) -> None:
        """Create a stream. Raises BrokerRefused if one of that name exists with other settings."""
        with self._asked(f"create stream {config.name}", str(config.name)):
            await self._js.add_stream(config)

    async def altering(self, doing: str, stream: str, work: Callable[[JetStream], Awaitable[T]]) -> T:
        """Have `work` done to a stream (see `altering`). Raises BrokerRefused, BrokerUnavailable."""
        with self._asked(doing, stream):
            return await work(self._js)

    async def create_consumer(self, stream: str, config: ConsumerConfig) -> ConsumerInfo:
        """Create a consumer. Raises StreamMissing, BrokerRefused, BrokerUnavailable."""
        with self._asked(f"read stream {stream}", stream):
            return await self._js.add_consumer(stream, config)

    async def delete_consumer(self, stream: str, consumer: str) -> None:
        """Delete a consumer; harmless when it or the connection is gone (the broker then drops it by itself)."""
        try:
            with Translated(f"delete consumer {consumer} of {stream}"):
                await self._js.delete_consumer(stream, consumer)
        except (BrokerUnavailable, BrokerRefused) as error:
            log.debug("%s", error)

    # ---- life

    async def close(self) -> None:
        """End the connection. Idempotent, never raises, takes at most five seconds whatever the server does.

        What was published is sent before, if the server takes it at once. It goes on behind if whoever waits is
        cancelled meanwhile, or the connection would stay for good.
        """
        if self._ending is None:
            self._closing = self._client.leaving = True
            self._ending = asyncio.create_task(self._close(), name=f"{self.name}: close")
        await asyncio.shield(self._ending)

    async def _close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await ended_within(self._connecting, 0.5)
        flushed = self.connected and await ended_within(self._client.flush(1), 1.5)
        if self._begun:
            if not flushed:
                self._client.give_up()
            if not await ended_within(self._client.close(), 2.0):
                self._client.give_up()

    async def _connect(self) -> None:
        self._begun = True
        try:
            await self._client.connect(
                **self._options,
                error_cb=self._when_error,
                disconnected_cb=self._when_disconnected,
                reconnected_cb=self._when_connected,
            )
        except Exception as error:  # what the driver does not try again after
            log.exception("cannot connect to %s", self.settings.shown)
            self._hopeless = BrokerRefused(f"cannot connect to {self.settings.shown}: {error!r}")
            self._begun = False
            self._connected.set()
            return
        await self._when_connected()

    async def _when_connected(self) -> None:
        self.connects += 1
        self.outage.over()
        self.last_error = ""
        self._refusals.clear()
        self._connected.set()
        log.info("connected to %s", self.url)
        for callback in list(self._on_connect):
            try:
                callback()
            except Exception:
                log.exception("a callback failed after the reconnect")

    async def _when_disconnected(self) -> None:
        if not self._closing:
            self.outage.goes_on("the connection was lost")
        self._connected.clear()
        self._client.abandon_requests()
        self._publishing.abandon()

    async def _when_error(self, error: Exception) -> None:
        """Never raises: the driver's read loop would end while the connection looks alive."""
        said = str(error) or type(error).__name__
        if said != self.last_error:
            log.warning("the broker at %s: %s", self.settings.shown, said)
        if not self._connected.is_set() and not self._closing:  # a loss is told as one before what follows from it
            self.outage.goes_on(said)
        if isinstance(error, OSError) and "authorization" in self.last_error.lower():
            return  # only what follows from that: it closes the connection
        self.last_error = said
        if "permissions violation" in said.lower() and '"' in said:
            self._refusals[said.lower().split('"')[1]] = said
            self._client.ask_again(said)

    def refusal(self, subject: str) -> str | None:
        """What the server said when it last refused a publish or a subscription to this subject; given once."""
        return self._refusals.pop(subject.lower(), None)

    def _raise_refusal(self, subject: str) -> None:
        """The server tells of a refused publish only aside, with the subject in lower case; then it is no timeout."""
        refusal = self.refusal(subject)
        if refusal:
            raise BrokerRefused(f"publish to {subject}: {refusal}")

    async def _raise_missing(self, stream: str, subject: str) -> None:
        """Nobody takes a publish where there is no stream and where it has no leader; tell the one from the other."""
        try:
            async with asyncio.timeout(MISSING_TIMEOUT):
                found = await self.stream_info(stream)
        except (TimeoutError, BrokerUnavailable, BrokerRefused):
            return
        if found is None:
            raise StreamMissing(f"publish to {subject}: there is no stream {stream}")

    @contextmanager
    def _asked(self, doing: str, stream: str) -> Iterator[None]:
        """Like `Translated`, for requests to JetStream about a stream; a refused one is no timeout either."""
        try:
            with Translated(doing):
                yield
        except BrokerUnavailable:
            for subject in self._refusals:
                if subject.startswith("$js.api.") and stream.lower() in subject.split("."):
                    raise BrokerRefused(f"{doing}: {self._refusals.pop(subject)}") from None
            raise

    async def _get(self, stream: str, **asked: int | str) -> RawStreamMsg | None:
        with self._asked(f"read stream {stream}", stream):
            async with asyncio.timeout(REQUEST_TIMEOUT):
                await self._connected.wait()
                return await (await self._publishing.ask(stream, asked))
