"""The dialer of `flight()`: a Flight client over a cord, so that it cannot connect again, its calls in threads."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow
from pyarrow import flight

from adsum.events.cord import Cord, NotConnected, is_never_sent
from adsum.events.description import FLIGHT_ACTION, Endpoint, health_path
from adsum.events.signals import Instance

from .dialing import IDENTITY, Blame

__all__ = ["FlightConnection", "FlightDialer"]

TLS = ("grpcs", "grpc+tls")
"""The protocols of an endpoint that is spoken to with TLS; any other is spoken to without."""
IDENTIFY = 30.0
"""Seconds after which a thread that asks who answers gives up, if nobody else did before."""
_PERHAPS_DONE = (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError)

T = TypeVar("T")


class FlightConnection:
    """A `pyarrow.flight.FlightClient` for asyncio: each call blocks a thread of this connection, not the event loop.

    `timeout`: seconds that a call may take, which the server is told too: `peer.timeout`. A caller who is cancelled
    waits no more. A `do_get` and `batches` then end at the server too; any other call goes on in its thread, until its
    time is over or the connection is closed.
    """

    def __init__(
        self, cord: Cord, client: flight.FlightClient, headers: Sequence[tuple[bytes, bytes]], threads: int
    ) -> None:
        self.client = client
        """For what there is no method for here: use it in `call`, as it blocks."""
        self._cord, self._headers = cord, list(headers)
        self._threads = ThreadPoolExecutor(threads, f"flight to {cord.endpoint.address}")

    @property
    def stands(self) -> bool:
        """Whether the connection has not ended."""
        return self._cord.stands

    async def call(self, do: Callable[[flight.FlightClient, flight.FlightCallOptions], T], *, timeout: float) -> T:
        """What `do(client, options)` gives, run in a thread. `options` bear the time and the headers: pass them on."""
        if timeout <= 0:
            raise TimeoutError(f"no time is left to call {self._cord.endpoint.address}")
        options = flight.FlightCallOptions(timeout=timeout, headers=self._headers)
        try:
            running = self._threads.submit(do, self.client, options)
        except RuntimeError as error:  # they were shut down
            raise NotConnected(self._cord.endpoint, "it was closed") from error
        return await asyncio.wrap_future(running)

    async def do_get(self, ticket: flight.Ticket, *, timeout: float) -> pyarrow.Table:
        """All of a stream as one table."""
        stream = _Stream(ticket)
        try:
            return await self.call(stream.read_all, timeout=timeout)
        except asyncio.CancelledError:
            stream.cancel()
            raise

    async def batches(self, ticket: flight.Ticket, *, timeout: float) -> AsyncIterator[pyarrow.RecordBatch]:
        """A stream batch by batch, read as fast as it is taken; `timeout` is for the whole of it."""
        stream = _Stream(ticket)
        try:
            await self.call(stream.open, timeout=timeout)
            while (batch := await self.call(stream.next, timeout=timeout)) is not None:
                yield batch
        finally:
            stream.cancel()

    async def do_action(self, kind: str, body: bytes = b"", *, timeout: float) -> list[bytes]:
        """What an action gives back."""
        action = flight.Action(kind, body)
        return await self.call(
            lambda client, options: [result.body.to_pybytes() for result in client.do_action(action, options)],
            timeout=timeout,
        )

    async def do_put(self, descriptor: flight.FlightDescriptor, table: pyarrow.Table, *, timeout: float) -> None:
        """Send a table."""

        def put(client: flight.FlightClient, options: flight.FlightCallOptions) -> None:
            writer, _ = client.do_put(descriptor, table.schema, options)
            with writer:
                writer.write_table(table)

        await self.call(put, timeout=timeout)

    async def get_flight_info(self, descriptor: flight.FlightDescriptor, *, timeout: float) -> flight.FlightInfo:
        """Where a flight is, and its tickets."""
        return await self.call(lambda client, options: client.get_flight_info(descriptor, options), timeout=timeout)

    async def close(self) -> None:
        """Hang up. What is under way fails as when the connection breaks, and its threads end."""
        await self._cord.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.client.close()


class _Stream:
    """What is read of one ticket, in threads, until it is cancelled by another one."""

    def __init__(self, ticket: flight.Ticket) -> None:
        self._ticket, self._reader, self._cancelled = ticket, None, False
        self._lock = threading.Lock()

    def open(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> flight.FlightStreamReader:
        reader = client.do_get(self._ticket, options)
        with self._lock:
            self._reader = reader
            if self._cancelled:
                reader.cancel()
        return reader

    def read_all(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> pyarrow.Table:
        reader = self.open(client, options)
        batches = iter(lambda: self.next(client, options), None)
        return pyarrow.Table.from_batches(list(batches), reader.schema)

    def next(self, client: flight.FlightClient, options: flight.FlightCallOptions) -> pyarrow.RecordBatch | None:
        """The next batch, None at the end. Not `reader.read_all`: once cancelled, that interrupts the main thread."""
        assert self._reader is not None
        try:
            return self._reader.read_chunk().data
        except StopIteration:
            return None

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._reader is not None:
                self._reader.cancel()


class FlightDialer:
    """Dials, asks and closes connections."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None,
        headers: Sequence[tuple[bytes, bytes]],
        middleware: Sequence[Any],
        options: Sequence[tuple[str, Any]],
        threads: int,
    ) -> None:
        self._tls, self._headers, self._threads = tls, headers, threads
        self._middleware, self._options = list(middleware), list(options)

    async def dial(self, instance: Instance, endpoint: Endpoint) -> FlightConnection:
        """A connection; whether Flight is spoken there, its first use tells. Raises NotConnected."""
        cord = await Cord.tie(endpoint, self._context() if endpoint.protocol in TLS else None)
        own = [("grpc.enable_retries", 0), ("grpc.default_authority", endpoint.address)]
        client = flight.FlightClient(
            f"grpc+unix://{cord.path}", middleware=self._middleware, generic_options=[*own, *self._options]
        )
        return FlightConnection(cord, client, self._headers, self._threads)

    async def close(self, connection: FlightConnection) -> None:
        """Hang up."""
        await connection.close()

    async def identify(self, connection: FlightConnection, instance: Instance, endpoint: Endpoint) -> str | None:
        """Who answers the action IDENTITY, where the path of the health is that of actions."""
        if health_path(instance.metadata, endpoint.name) != FLIGHT_ACTION:
            return None
        try:
            said = await connection.do_action(IDENTITY, timeout=IDENTIFY)
        except (flight.FlightError, pyarrow.ArrowException) as error:
            if self.blame(error) is Blame.ANSWERED:
                return ""  # somebody is there, who does not know the action
            raise
        return said[0].decode(errors="replace") if said else ""

    def stands(self, connection: FlightConnection) -> bool:
        """Whether the connection has not ended."""
        return connection.stands

    def blame(self, error: Exception) -> Blame:
        """See `flight`."""
        if isinstance(error, NotConnected):
            return Blame.UNREACHABLE
        if isinstance(error, flight.FlightUnavailableError) and is_never_sent(str(error)):
            return Blame.UNREACHABLE
        return Blame.BROKEN if isinstance(error, _PERHAPS_DONE) else Blame.ANSWERED

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["h2"])
        return self._tls
