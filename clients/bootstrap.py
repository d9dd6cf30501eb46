"""One call to join: registered, beating, and a cache of all others, as a configuration file says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from adsum.events.config import Config, load_config
from adsum.events.description import split_address
from adsum.events.names import check_capability, check_label
from adsum.events.numbers import check_wait
from adsum.events.roles import role_of
from adsum.events.signals import Instance

from .directory import Directory
from .registration import SETTLE, TOLD_LIMIT, Registration
from .registry import DEFAULT_WAIT, Registry, connect

__all__ = ["Member", "bootstrap"]

LONGEST_PING = 2.0


def bootstrap(
    config: str | Path | Config | None,
    role: str,
    *,
    address: str,
    id: str | None = None,
    namespace: str = "default",
    capabilities: Iterable[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    protocol: str | None = None,
    version: str | None = None,
    weight: float | None = None,
    zone: str | None = None,
    wait: float = DEFAULT_WAIT,
) -> Member:
    """Join as an instance of a role, which is its service, for as long as a block runs:

        async with bootstrap("adsum.toml", "querier", address="10.0.0.7:50051") as me: …

    `config`: the path of a configuration file, one that was loaded, or None for the defaults. It says where the broker
    is, heartbeat, TTL and poll interval, and in [roles.NAME] what a role says of itself; what is given here goes before
    that. Where it lists roles, one that is not among them is refused. `address`: where others reach this instance, its
    listener open already; without a host (":50051") this process's address on its connection to the broker. `id`: as
    for `Registry.register`. `wait`: seconds that entering waits for the broker before it goes on behind.
    Raises InvalidValue at once, or on entering, before anything is sent.
    """
    loaded = load_config(config) if isinstance(config, str | Path) else config or Config()
    defaults = role_of(loaded.roles, role)
    host, port = split_address("address", address)
    given = {
        "capabilities": capabilities,
        "metadata": metadata,
        "protocol": protocol,
        "version": version,
        "weight": weight,
        "zone": zone,
    }
    said = {name: getattr(defaults, name) if value is None else value for name, value in given.items()}
    said |= {"host": host or None, "port": port, "id": id}
    return Member(loaded, role, check_label("namespace", namespace), said, check_wait("wait", wait))


class Member:
    """An async context manager, made by `bootstrap`. Inside the block the instance is registered and beats.

    To leave without a lost call: `await me.drain()` while the listener is still open, finish what is in flight, close
    it, leave the block. Leaving says goodbye at once; whoever is called then is no longer there.
    """

    def __init__(self, config: Config, role: str, namespace: str, said: Mapping[str, Any], wait: float) -> None:
        self.config, self.role = config, role
        ping = min(LONGEST_PING, config.heartbeat_interval / 2)
        self.registry: Registry = connect(config.nats, namespace=namespace, ping=ping)
        self.peers = self.registry.peers
        """Those with a capability, to be called: `async with me.peers(capability="Storage", dial=grpc()) as peers`."""
        self._said, self._wait = said, wait
        self._parts: tuple[Directory, Registration] | None = None
        self._known: tuple[Instance, ...] = ()
        self._found: dict[str, tuple[Instance, ...]] = {}
        self._stack = AsyncExitStack()

    def __str__(self) -> str:
        return f"member {self.registry.namespace}/{self.role}"

    @property
    def registration(self) -> Registration:
        """This instance: what it says of itself, and whether it is still it. Raises RuntimeError outside the block."""
        return self._entered()[1]

    @property
    def directory(self) -> Directory:
        """Who is there, of the whole namespace. Raises RuntimeError outside the block."""
        return self._entered()[0]

    @property
    def id(self) -> str:
        """The instance id."""
        return self.registration.id

    def discover(self, capability: str) -> tuple[Instance, ...]:
        """Who has a capability and is fit to be called, this instance too, by service and id; from the local cache.

        The same tuple until something changes. Empty when nobody is there; while that is not known, which is not
        nobody, it raises NotLoaded, and `directory.state` tells whether the cache is `live`. Raises InvalidValue.
        """
        known = self.directory.instances(routable=True)
        if known is not self._known:
            self._known, self._found = known, {}
        found = self._found.get(capability)
        if found is None:
            check_capability(capability)
            found = tuple(sorted((one for one in known if capability in one.capabilities), key=lambda one: one.key))
            self._found[capability] = found
        return found

    async def drain(self, reason: str = "", *, told: float = TOLD_LIMIT, settle: float = SETTLE) -> bool:
        """Take no new calls: nobody who follows the registry picks this instance any more. See `Registration.drain`."""
        return await self.registration.drain(reason, told=told, settle=settle)

    async def __aenter__(self) -> Member:
        if self._parts is not None:
            raise RuntimeError("a member is entered once; bootstrap again for another one")
        clock = asyncio.get_running_loop().time
        until = clock() + self._wait
        async with AsyncExitStack() as stack:
            registry = await stack.enter_async_context(self.registry)
            registration = registry.register(
                self.role, heartbeat=self.config.heartbeat_interval, ttl=self.config.ttl, wait=self._wait, **self._said
            )
            directory = registry.directory(poll_interval=self.config.poll_interval, wait=0)
            await stack.enter_async_context(directory)
            await stack.enter_async_context(registration)
            await directory.loaded(max(until - clock(), 0))
            self._parts = directory, registration
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    def _entered(self) -> tuple[Directory, Registration]:
        if self._parts is None:
            raise RuntimeError("enter it first: async with bootstrap(…) as me")
        return self._parts
