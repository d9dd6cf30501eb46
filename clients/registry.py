"""`connect()`: one connection to the broker, from which registrations and directories are made."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import NamedTuple, TypeVar

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.config import DEFAULT_POLL_INTERVAL
from adsum.events.description import DEFAULT_HEARTBEAT, DEFAULT_PROTOCOL, DEFAULT_TTL, Endpoint, describe
from adsum.events.errors import InvalidValue
from adsum.events.ids import new_id
from adsum.events.names import Key, check_capability, check_label, check_text
from adsum.events.numbers import check_number, check_wait
from adsum.events.signals import Instance
from adsum.events.together import SharedLog

from .choosing import Outliers, Policy
from .directory import Directory
from .history import History
from .leases import Leases
from .loading import Loading
from .marks import Marks
from .peers import Bounds, Dialer, Peers
from .registration import Registration
from .registrations import Registrations
from .reporting import Reporting
from .subscribing import Subscriptions
from .watching import end_all

__all__ = ["Registry", "connect"]

C = TypeVar("C")
DEFAULT_WAIT = 5.0
"""Seconds that entering a block, or changing something, waits before it goes on behind."""
UNKNOWN_HOST = "localhost"


def connect(
    broker: str | BrokerSettings | None = None,
    *,
    namespace: str = "default",
    name: str | None = None,
    ping: float = 2.0,
) -> Registry:
    """The registry behind a broker: `async with connect("nats://127.0.0.1:4222") as registry: …`

    `broker`: a URL (several with commas), or settings with credentials; None is nats://127.0.0.1:4222. Entering the
    block returns at once, also when there is no broker: it connects behind, and tries for ever. `name` is this
    process as the broker and the log name it (default: host/pid). `ping`: seconds between two pings, at most half
    the shortest heartbeat that is registered over it, or a dead broker is noticed too late.
    Raises InvalidValue for a namespace that is no DNS label; entering, for a URL or a file that cannot be used.
    """
    settings = (
        broker if isinstance(broker, BrokerSettings) else BrokerSettings(url=broker) if broker else BrokerSettings()
    )
    called = check_text("name", name, 128) if name else f"{socket.gethostname()}/{os.getpid()}"
    return Registry(settings, check_label("namespace", namespace), called, ping)


class _Parts(NamedTuple):
    """What there is once in a registry."""

    broker: Broker
    marks: Marks
    subscriptions: Subscriptions
    loading: Loading
    reporting: Reporting
    log: SharedLog


class Registry:
    """An async context manager; see `connect`. Leave the blocks of registrations and directories before its own."""

    def __init__(self, settings: BrokerSettings, namespace: str, name: str, ping: float) -> None:
        self.namespace = namespace
        self.outliers = Outliers()
        """What this process's calls told of the endpoints it called, shared by all selections."""
        self._settings, self._name, self._ping = settings, name, ping
        self._parts: _Parts | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self._left = False

    def __str__(self) -> str:
        return f"registry {self.namespace} at {self._settings.shown}"

    @property
    def broker(self) -> Broker:
        """The connection, for what has no method here. Raises RuntimeError outside the block."""
        return self._entered().broker

    def register(
        self,
        service: str,
        *,
        port: int | None = None,
        host: str | None = None,
        id: str | None = None,
        protocol: str = DEFAULT_PROTOCOL,
        endpoints: Iterable[Endpoint] | None = None,
        capabilities: Iterable[str] = (),
        metadata: Mapping[str, str] | None = None,
        version: str = "",
        zone: str = "",
        weight: float = 1.0,
        heartbeat: float = DEFAULT_HEARTBEAT,
        ttl: float = DEFAULT_TTL,
        wait: float = DEFAULT_WAIT,
    ) -> Registration:
        """Register an instance of `service` for as long as a block runs:

            async with registry.register("orders", port=8080, capabilities=["payments"]) as me: …

        Give `port` (with `host`, by default this process's address on its connection to the broker, and
        `protocol`) or `endpoints`. `id`: a new UUIDv7 unless given; a given one takes over from whoever has it.
        `heartbeat`, `ttl`: seconds; silent for a TTL it is stale, for two it is gone. `wait`: seconds, see
        Registration. Raises InvalidValue before anything is sent.
        """
        given = tuple(endpoints) if endpoints is not None else ()
        if given and (port is not None or host is not None):
            raise InvalidValue("endpoints", len(given), "give either endpoints or a port and a host")
        if not given:
            if port is None:
                raise InvalidValue("port", port, "give a port, or endpoints")
            given = (Endpoint(host=UNKNOWN_HOST if host is None else host, port=port, protocol=protocol),)
        described = describe(
            given,
            capabilities=capabilities,
            metadata=metadata,
            version=version,
            zone=zone,
            weight=weight,
            heartbeat=heartbeat,
            ttl=ttl,
        )
        key = Key(
            self.namespace, check_label("service", service), check_label("instance id", new_id() if id is None else id)
        )
        parts = self._entered()
        open_host = endpoints is None and host is None
        check_wait("wait", wait)
        return Registration(
            parts.broker, parts.marks, parts.log, key, described, open_host=open_host, given=id is not None, wait=wait
        )

    def register_many(self, registrations: Iterable[Registration], *, wait: float = DEFAULT_WAIT) -> Registrations:
        """Register many instances for as long as a block runs, as cheaply as can be:

            fleet = [registry.register("orders", id=name, host=host, port=port) for name, host, port in found]
            async with registry.register_many(fleet) as orders: …

        Each is what `register` gives, not entered by itself (its own `wait` holds for `update` and the like). More are
        added and removed inside the block. `wait`: seconds that entering waits for all. Entering raises InvalidValue
        for an instance that is given twice.
        """
        parts = self._entered()
        return Registrations(parts.broker, parts.marks, registrations, wait)

    def directory(
        self,
        *services: str,
        capability: str | None = None,
        poll_interval: float = DEFAULT_POLL_INTERVAL,
        wait: float = DEFAULT_WAIT,
    ) -> Directory:
        """A local copy of who is there, for as long as a block runs:

            async with registry.directory("orders") as orders: …

        Of the named services; with none, of the whole namespace. With `capability` only instances that have it are
        shown. `poll_interval`: seconds without any mark after which it reads anew by itself. `wait`: seconds that
        entering waits for the first load. Raises InvalidValue.
        """
        names = tuple(dict.fromkeys(check_label("service", service) for service in services))
        if capability is not None:
            check_capability(capability)
        check_number("poll_interval", poll_interval, "must be a positive number of seconds", lambda s: s > 0)
        check_wait("wait", wait)
        parts = self._entered()
        return Directory(
            parts.broker,
            parts.marks,
            parts.subscriptions,
            parts.loading,
            self.namespace,
            names,
            capability=capability,
            poll_interval=poll_interval,
            wait=wait,
            outliers=self.outliers,
        )

    def peers(
        self,
        *services: str,
        dial: Dialer[C],
        capability: str | None = None,
        directory: Directory | None = None,
        policy: Policy | None = None,
        zone: str | None = None,
        version: str | None = None,
        metadata: Mapping[str, str] | None = None,
        endpoint: str | None = None,
        protocol: str | None = None,
        fail_open: bool = False,
        panic: float = 0.5,
        outliers: Outliers | None = None,
        verify: bool = False,
        timeout: float = 60.0,
        grace: float = 0.0,
        connect_timeout: float = 30.0,
        attempts: int = 3,
        idle: float = 300.0,
        limit: int = 50,
        wait: float = DEFAULT_WAIT,
    ) -> Peers[C]:
        """Those who can be called, with connections to them, for as long as a block runs:

            async with registry.peers("querier", dial=http()) as peers:
                answer = await peers.call(lambda peer: peer.connection.get("/x"), timeout=2.0)

        Of the named services, of those with `capability`, or of both, by a directory of its own that waits as
        `directory` says; or by a `directory` that is open already, of all that it follows or of one service. `policy`
        to `outliers`: see `Directory.select`. `dial`: how the protocol is spoken: `http()`, `grpc()`, `flight()`.

        `verify`: whether a peer must say that it is itself before it is called. `timeout`: seconds of a call unless it
        names others. `grace`: seconds that a caller waits longer than the callee is told to take, so that the callee's
        own error arrives. `connect_timeout`: seconds of a dial, which goes on when the caller's time is over.
        `attempts`: to how many peers one call is given at most; dials in vain do not count. `idle`: seconds after which
        an unused connection is closed. `limit`: connections at most; when all are in use, a call waits within its time.
        Raises InvalidValue.
        """
        bounds = Bounds(
            timeout=timeout, grace=grace, connect_timeout=connect_timeout, attempts=attempts, idle=idle, limit=limit
        )
        if isinstance(dial, type) or not hasattr(dial, "dial"):
            raise InvalidValue("dial", dial, "must be a dialer: what http(), grpc() or flight() gives")
        if not services and capability is None and directory is None:
            raise InvalidValue("services", services, "name a service, a capability, or give a directory")
        if directory is not None and (capability is not None or len(services) > 1):
            raise InvalidValue("directory", str(directory), "takes at most one of its services, and no capability")
        seen = directory if directory is not None else self.directory(*services, capability=capability, wait=wait)
        selection = seen.select(
            services[0] if directory is not None and services else None,
            policy=policy,
            zone=zone,
            version=version,
            metadata=metadata,
            endpoint=endpoint,
            protocol=protocol,
            fail_open=fail_open,
            panic=panic,
            outliers=outliers,
        )
        return Peers(seen, selection, dial, self._entered().reporting, bounds, own=directory is None, verify=verify)

    def leases(self, *, timeout: float = DEFAULT_WAIT) -> Leases:
        """Lives that their owner renews by hand, and a watch of who is there: `await registry.leases().register(…)`.

        `timeout`: seconds that each call waits for the broker, at most.
        """
        check_number("timeout", timeout, "must be a positive number of seconds", lambda s: s > 0)
        follow = partial(self.directory, wait=0)
        return Leases(self.broker, self.namespace, follow, self._watching, timeout=timeout)

    async def report(self, instance: Instance, *, endpoint: str = "", reason: str = "", ago: float = 0.0) -> bool:
        """Say that a call could not reach `instance`, `ago` seconds before, at its `endpoint` (a name; "": the first).

        adsumd then looks for itself; what a caller says decides nothing. Only for what shows that nobody is there or
        nobody answers (refused, no route, timed out), not for an answer that is an error. Whether it was sent: it is
        not while the broker is away, nor again within five seconds. Raises InvalidValue.
        """
        return await self._entered().reporting.report(instance, endpoint, reason, ago)

    def history(self, *, timeout: float = 10.0) -> History:
        """What happened, asked of an adsumd: `async for event in registry.history().events(EventsAsked(…))`.

        Of all namespaces unless the question names one. `timeout`: seconds for each page of an answer.
        """
        check_number("timeout", timeout, "must be a positive number of seconds", lambda s: s > 0)
        return History(self.broker, timeout)

    def _entered(self) -> _Parts:
        if self._parts is None:
            raise RuntimeError("enter the registry first: async with connect(…) as registry")
        if self._left:
            raise RuntimeError("the registry's block is over: use it within, or connect again")
        return self._parts

    async def __aenter__(self) -> Registry:
        if self._parts is not None:
            raise RuntimeError("a registry is entered once; connect again for another one")
        broker = Broker.open(self._settings, self._name, ping=self._ping)
        self._stack.push_async_callback(broker.close)
        self._stack.push_async_callback(end_all, self._watching)
        self._parts = _Parts(
            broker,
            Marks(broker, self.namespace),
            Subscriptions(broker, self.namespace),
            Loading(broker),
            Reporting(broker),
            SharedLog(broker),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        self._left = True
