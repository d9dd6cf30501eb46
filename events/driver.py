"""What adsum asks of nats-py and what it makes of its answers: options, errors, cancellation.

With `broker` this is all that knows the driver. Its error tree becomes ours here, at one boundary.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from .errors import BrokerRefused, BrokerUnavailable, Unacknowledged
from .settings import BrokerSettings, check_servers, readable, tls_context

__all__ = ["Driver", "JetStream", "WrongLastSequence", "heeding_cancellation", "options", "sequence_of", "translated"]

_WRONG_LAST_SEQUENCE = frozenset({10071, 10164})

log = logging.getLogger("adsum.broker")


class WrongLastSequence(BrokerRefused):
    """A conditional publish was refused: another message came to that subject first."""


class Driver(Client):
    """nats-py, but for four things, three of which left a process deaf that believed itself connected.

    It closes for good when the server says an error to a connection that stands (its credentials expired or were taken
    back, too many connections): this one tries again, like after any other loss. The answer to a ping whose sender
    was cancelled or timed out ends its read loop: here it is let go. And a read loop that ends, for whatever reason,
    while the connection stands is a lost connection. And the socket of a handshake that failed is closed at once.
    """

    async def _process_err(self, err_msg: str) -> None:
        if "permissions violation" in err_msg.lower():
            await super()._process_err(err_msg)
            return
        error = nats.errors.Error(f"nats: {err_msg}")
        await self._error_cb(error)
        await self._process_op_err(error)

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # the driver's own
            raise

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _read_loop(self) -> None:
        await super()._read_loop()
        if self._status == Client.CONNECTED:
            error = nats.errors.Error("nats: reading from the server ended")
            await self._error_cb(error)
            await self._process_op_err(error)


class JetStream(JetStreamContext):
    """nats-py, but for one thing: it raises a refused publish in its own reader, and who awaits it waits for ever."""

    async def _handle_async_reply(self, msg: Msg) -> None:
        try:
            await super()._handle_async_reply(msg)
        except nats.js.errors.Error as error:
            waiting = self._publish_async_futures.get(msg.subject.rpartition(".")[2])
            if waiting is not None and not waiting.done():
                waiting.set_exception(error)


def options(settings: BrokerSettings, name: str, ping: float, keep_unsent: bool) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "servers": check_servers(settings),
        "name": name,
        "max_reconnect_attempts": -1,  # the default gives up after 60 and the process would be invisible for good
        "reconnect_time_wait": random.uniform(0.3, 0.8),  # spread over the fleet, so that no herd comes back at once
        "connect_timeout": 3,
        "ping_interval": ping,  # the default notices a dead server after four minutes
        "max_outstanding_pings": 2,
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


@contextmanager
def heeding_cancellation() -> Iterator[None]:
    """Raise CancelledError if this task was cancelled meanwhile, even where the driver lost that.

    It does where it makes another error of it, and wherever it waits with `asyncio.wait_for`, which up to Python 3.11
    gives the result instead if both come at once. A task would then go on that its owner waits for to end.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


@contextmanager
def translated(doing: str, unanswered: type[BrokerUnavailable] = BrokerUnavailable) -> Iterator[None]:
    """The one boundary at which the driver's errors become ours."""
    try:
        with heeding_cancellation():
            yield
    except (nats.errors.TimeoutError, TimeoutError) as error:
        raise unanswered(f"{doing}: no answer in time") from error
    except (nats.js.errors.NoStreamResponseError, nats.js.errors.ServiceUnavailableError) as error:
        why = "no stream answers (no JetStream there, no adsumd yet, or no leader at the moment)"
        raise BrokerUnavailable(f"{doing}: {why}") from error
    except nats.js.errors.APIError as error:
        wrong = error.err_code in _WRONG_LAST_SEQUENCE
        raise (WrongLastSequence if wrong else BrokerRefused)(f"{doing}: {error.description}") from error
    except (nats.errors.Error, OSError) as error:
        raise BrokerUnavailable(f"{doing}: {error}") from error


def sequence_of(acknowledged: asyncio.Future[Any], subject: str) -> asyncio.Future[int]:
    """The driver's future of an acknowledgement as one of a sequence, its errors translated."""
    sequence: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def settle(source: asyncio.Future[Any]) -> None:
        if sequence.done():
            return
        if source.cancelled():
            sequence.cancel()
            return
        try:
            with translated(f"publish to {subject}", unanswered=Unacknowledged):
                sequence.set_result(source.result().seq)
        except (BrokerUnavailable, BrokerRefused) as error:
            sequence.set_exception(error)

    def abandon(outer: asyncio.Future[int]) -> None:
        if outer.cancelled():
            acknowledged.cancel()

    acknowledged.add_done_callback(settle)
    sequence.add_done_callback(abandon)
    return sequence
