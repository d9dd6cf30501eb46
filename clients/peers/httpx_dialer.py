"""The dialer behind `http()`; this module needs httpx."""

from __future__ import annotations

import math
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import Any

import httpcore
import httpx

from adsum.clients.errors import NotItself
from adsum.events.description import Endpoint, health_path
from adsum.events.names import Key
from adsum.events.signals import Instance

from .dialing import IDENTITY, Blame, NotServing

__all__ = ["HttpxDialer"]

LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=1.5)
"""A request that meets a server which is just closing the connection is lost, and nobody can tell whether it was done.
So a connection is given up before any server would: the most hurried are gunicorn after 2 s, uvicorn and Node after 5.
"""
SOON = 1.0
"""Seconds in which the first request over a connection comes in any case."""
LONGEST_ANSWER = 65536
"""Bytes of an answer to the question who is there."""
UNREACHABLE = (httpx.ConnectError, httpx.ConnectTimeout, httpcore.ConnectError, httpcore.ConnectTimeout)
BROKEN = (
    httpx.NetworkError,
    httpx.TimeoutException,
    httpx.RemoteProtocolError,
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.RemoteProtocolError,
)


class _Asking:
    """Whom every new connection of one peer must be, once it was asked. `said`: what the first one answered."""

    def __init__(self, key: Key, endpoint: Endpoint, url: str) -> None:
        self.key, self.endpoint, self.url, self.said = key, endpoint, httpcore.URL(url), ""

    async def who(self, handler: Any, timeout: float | None) -> str:
        """Who answers, by its own word; `handler` sends a request. Raises NotServing for a fault of its own (5xx)."""
        limits = {"connect": timeout, "read": timeout, "write": timeout, "pool": timeout}
        host = (b"Host", self.endpoint.address.encode())
        asked = httpcore.Request("GET", self.url, headers=[host], extensions={"timeout": limits})
        answer = await handler.handle_async_request(asked)
        try:
            size = 0
            async for part in answer.aiter_stream():
                size += len(part)
                if size > LONGEST_ANSWER:
                    break  # then the connection is not used again
        finally:
            await answer.aclose()
        said = [value for name, value in answer.headers if name.lower() == IDENTITY.encode()]
        who = said[0].decode("latin-1") if said else ""
        if answer.status >= 500 and who == str(self.key):
            raise NotServing(f"{self.key} answers with status {answer.status} at {self.url.target.decode()}")
        return who

    async def again(self, stream: httpcore.AsyncNetworkStream, timeout: float | None) -> None:
        """Ask a new connection, and leave it as it was. Raises NotItself; ConnectError where it cannot be told."""
        connection = httpcore.AsyncHTTP11Connection(self.url.origin, stream)
        try:
            said = await self.who(connection, timeout)
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise httpcore.ConnectError(f"connected, and was not told who answers: {error!r}") from error
        if said != self.said:
            raise NotItself(self.key, self.endpoint.address, said)
        if not connection.is_idle():
            raise httpcore.ConnectError(f"connected, and {self.url.target.decode()} ends each connection")


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that asks before the first byte goes over it, if it is to ask."""

    def __init__(self, inner: httpcore.AsyncNetworkStream, network: _Network) -> None:
        self._inner, self._network = inner, network
        self.asked = False

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if not self.asked:
            self.asked = True
            if self._network.asking is not None:
                await self._network.asking.again(self._inner, self._network.connect)
        await self._inner.write(buffer, timeout)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self._network)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Network(httpcore.AsyncNetworkBackend):
    """Makes the connections of one peer. `asking`: set once it was asked. The first one is made by `prepare`."""

    def __init__(self, connect: float, expiry: float | None) -> None:
        self.connect = connect
        self.asking: _Asking | None = None
        self._expiry = math.inf if expiry is None else max(expiry, SOON)
        self._network = httpcore.AnyIOBackend()
        self._prepared: dict[tuple[str, int], tuple[httpcore.AsyncNetworkStream, float]] = {}

    @property
    def prepared(self) -> bool:
        """Whether there is a connection that was not used yet, and is not too old for it."""
        return any(made_at + self._expiry > time.monotonic() for _, made_at in self._prepared.values())

    async def prepare(self, host: str, port: int) -> None:
        """Connect, for the first request that comes."""
        self._prepared[host.lower(), port] = await self._network.connect_tcp(host, port), time.monotonic()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        fresh = self.prepared
        made, _ = self._prepared.pop((host, port), (None, 0.0))
        if made is not None and (not fresh or made.get_extra_info("is_readable")):  # closed by the peer, or soon
            await made.aclose()
            made = None
        if made is None:
            made = await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        return _Stream(made, self)

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)

    async def aclose(self) -> None:
        """Hang up what nobody used."""
        while self._prepared:
            made, _ = self._prepared.popitem()[1]
            await made.aclose()


class _Transport(httpx.AsyncHTTPTransport):
    """httpx's own, over connections that `network` makes, to one peer."""

    def __init__(self, network: _Network, tls: ssl.SSLContext, limits: httpx.Limits) -> None:
        super().__init__(verify=tls, trust_env=False)
        self.network = network
        self._pool = httpcore.AsyncConnectionPool(  # which httpx has no public way to set
            ssl_context=tls,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=network,
        )

    @property
    def stands(self) -> bool:
        """Whether a request need not begin with a connection of which nobody knows whether it comes about."""
        return self.network.prepared or any(
            not (one.is_closed() or one.has_expired()) for one in self._pool.connections
        )

    async def who(self, asking: _Asking, timeout: float) -> str:
        """Ask the connection that stands; from now on all others are asked too."""
        asking.said = await asking.who(self._pool, timeout)
        self.network.asking = asking
        return asking.said

    async def aclose(self) -> None:
        await super().aclose()
        await self.network.aclose()


class HttpxDialer:
    """See `http`."""

    def __init__(
        self,
        *,
        headers: Mapping[str, str] | None,
        tls: ssl.SSLContext | None,
        limits: httpx.Limits | None,
        connect: float,
        options: Mapping[str, Any] | None,
    ) -> None:
        self._tls = tls or httpx.create_ssl_context()
        self._limits = limits or LIMITS
        self._connect = connect
        self._options = {"headers": headers, "timeout": httpx.Timeout(None, connect=connect), **(options or {})}

    async def dial(self, instance: Instance, endpoint: Endpoint) -> httpx.AsyncClient:
        """See Dialer."""
        network = _Network(self._connect, self._limits.keepalive_expiry)
        await network.prepare(endpoint.host, endpoint.port)
        transport = _Transport(network, self._tls, self._limits)
        return httpx.AsyncClient(transport=transport, base_url=_url(endpoint), **self._options)

    async def close(self, connection: httpx.AsyncClient) -> None:
        """See Dialer."""
        await connection.aclose()

    async def identify(self, connection: httpx.AsyncClient, instance: Instance, endpoint: Endpoint) -> str | None:
        """See Dialer."""
        path = health_path(instance.metadata, endpoint.name)
        if not path:
            return None
        asking = _Asking(instance.key, endpoint, _url(endpoint) + path)
        return await _transport(connection).who(asking, self._connect)

    def stands(self, connection: httpx.AsyncClient) -> bool:
        """See Dialer."""
        return _transport(connection).stands

    def blame(self, error: Exception) -> Blame:
        """See Dialer."""
        if isinstance(error, UNREACHABLE):
            return Blame.UNREACHABLE
        if isinstance(error, httpx.PoolTimeout | NotServing):
            return Blame.DECLINED
        return Blame.BROKEN if isinstance(error, BROKEN) else Blame.ANSWERED


def _url(endpoint: Endpoint) -> str:
    return f"{'https' if endpoint.protocol == 'https' else 'http'}://{endpoint.address}"


def _transport(connection: httpx.AsyncClient) -> _Transport:
    transport = connection._transport  # it has no public name
    assert isinstance(transport, _Transport)
    return transport
