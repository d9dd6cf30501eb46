"""A registration: the owner's side of one instance, for as long as its block runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Literal, TypeAlias, get_args

import msgspec

from adsum.events.broker import Broker
from adsum.events.description import MAX_REASON, Description, Endpoint, describe
from adsum.events.errors import BrokerUnavailable, InvalidValue
from adsum.events.lifecycle import Health, Mode
from adsum.events.names import Key, check_text
from adsum.events.signals import Instance
from adsum.events.together import SharedLog

from .errors import LifeEnded, Removed
from .keeping import Block, Owned
from .life import Standing
from .marks import Marks

__all__ = ["Registration", "RegistrationState"]

RegistrationState: TypeAlias = Literal["registering", "registered", "superseded", "removed", "closed"]
TOLD_LIMIT = 2.0
SETTLE = 1.0

log = logging.getLogger("adsum.registration")


class Registration:
    """An async context manager, made by `Registry.register`. Inside the block the instance is registered and beats.

    Entering waits at most `wait` seconds for the broker to acknowledge; then the block runs all the same and the
    registration goes on behind, because a service must start while the registry is down. Whatever the owner changes
    (`update`, `health`, `drain`, …) is its standing will: after an outage of any length the latest stands.
    Leaving the block stops the beats and says goodbye, at most a few seconds.

    If another process registers the same id later, or an operator removes the instance, the registration stops and
    says so: `state`, `ended()`, `raise_if_ended()`, and a line in the log. The block itself goes on.
    """

    def __init__(
        self,
        broker: Broker,
        marks: Marks,
        shared: SharedLog,
        key: Key,
        wanted: Description,
        *,
        open_host: bool,
        given: bool,
        wait: float,
    ) -> None:
        self.owned = Owned(broker, shared, key, Standing(description=wanted), open_host=open_host, given=given)
        """What keeps it; for `Registrations`."""
        self._broker, self._marks, self._wait = broker, marks, wait
        self._reconciler = self.owned.reconciler
        self._stack: AsyncExitStack | None = None

    # ---- what it is

    def __str__(self) -> str:
        return f"registration of {self.key}"

    @property
    def key(self) -> Key:
        """Namespace, service and id."""
        return self._reconciler.key

    @property
    def id(self) -> str:
        """The instance id."""
        return self.key.id

    @property
    def term(self) -> str:
        """The life that is lived, or was last; "" before the first one is acknowledged."""
        return self._reconciler.term

    @property
    def state(self) -> RegistrationState:
        """registering (also: again, after it expired), registered, superseded, removed, or closed: the block was left.

        During an outage of the broker it is what it was before.
        """
        end = self._reconciler.end
        if end is not None:
            return "removed" if isinstance(end, Removed) else "superseded"
        if self.owned.closed:
            return "closed"
        return "registered" if self._reconciler.registered else "registering"

    @property
    def description(self) -> Description:
        """What the instance says of itself. A host that was not given is "localhost" until the broker has told this
        process's address, and follows it when the connection moves."""
        return self._reconciler.wanted.description

    @property
    def host(self) -> str:
        """Where others reach its first endpoint, as far as is known by now."""
        return (self.owned.open_host and self._broker.local_host) or self.description.endpoints[0].host

    @property
    def standing(self) -> Standing:
        """Description, health and mode as they should be: set by the owner, or taken over from an operator."""
        return self._reconciler.wanted

    # ---- waiting

    async def registered(self, timeout: float | None = None) -> None:
        """Wait until registered, at most `timeout` seconds. Raises BrokerUnavailable with the last error, LifeEnded."""
        await self._reconciler.notice.until(lambda: self.state != "registering", timeout)
        self.raise_if_ended()
        if self.state == "registering":
            raise BrokerUnavailable(f"{self.key}: not registered yet{self._why()}")

    async def settled(self) -> None:
        """Wait until it is not `registering`: registered, ended by others, or closed."""
        await self._reconciler.notice.until(lambda: self.state != "registering")

    async def ended(self) -> LifeEnded:
        """Wait until the life was ended by others, or the block was left; gives Superseded, Removed or LifeEnded."""
        await self._reconciler.notice.until(lambda: self._end() is not None)
        end = self._end()
        assert end is not None
        return end

    def raise_if_ended(self) -> None:
        """Raise Superseded, Removed, or LifeEnded once the block was left."""
        end = self._end()
        if end is not None:
            raise end

    # ---- what the owner changes

    async def update(
        self,
        *,
        endpoints: Iterable[Endpoint] | None = None,
        capabilities: Iterable[str] | None = None,
        metadata: Mapping[str, str] | None = None,
        version: str | None = None,
        zone: str | None = None,
        weight: float | None = None,
        heartbeat: float | None = None,
        ttl: float | None = None,
    ) -> bool:
        """Describe the instance anew; what is not named stays. Whether it is in the log when this returns.

        Waits at most the `wait` of the registration; False means that it goes on behind. Raises InvalidValue at
        once, LifeEnded.
        """
        old = self.description
        described = describe(
            old.endpoints if endpoints is None else endpoints,
            capabilities=old.capabilities if capabilities is None else capabilities,
            metadata=old.metadata if metadata is None else metadata,
            version=old.version if version is None else version,
            zone=old.zone if zone is None else zone,
            weight=old.weight if weight is None else weight,
            heartbeat=old.heartbeat if heartbeat is None else heartbeat,
            ttl=old.ttl if ttl is None else ttl,
        )
        self.owned.open_host = self.owned.open_host and endpoints is None
        return await self._want(msgspec.structs.replace(self.standing, description=described))

    async def health(self, health: Health, reason: str = "") -> bool:
        """Say how it is: passing, warning or critical (not to be called). Waits and raises like `update`."""
        if health not in get_args(Health):
            raise InvalidValue("health", health, f"must be one of {', '.join(get_args(Health))}")
        check_text("reason", reason, MAX_REASON)
        return await self._want(msgspec.structs.replace(self.standing, health=health, health_reason=reason))

    async def mode(self, mode: Mode, reason: str = "") -> bool:
        """Serving, draining or maintenance (neither to be called). Waits and raises like `update`."""
        if mode not in get_args(Mode):
            raise InvalidValue("mode", mode, f"must be one of {', '.join(get_args(Mode))}")
        check_text("reason", reason, MAX_REASON)
        return await self._want(msgspec.structs.replace(self.standing, mode=mode, mode_reason=reason))

    async def serve(self, reason: str = "") -> bool:
        """Take calls (again)."""
        return await self.mode("serving", reason)

    async def drain(self, reason: str = "", *, told: float = TOLD_LIMIT, settle: float = SETTLE) -> bool:
        """Take no new calls, before the process stops: then finish those in flight and leave the block.

        Once it is in the log, waits at most `told` seconds more until the projector has told the directories, and then
        `settle` seconds for those callers that hear it a little later, or had just picked this instance: they still
        come. When this returns, the listener may be closed. `told=0` waits for neither.
        """
        said = await self.mode("draining", reason)
        if said and told > 0 and await self._reconciler.notice.until(lambda: self._told_mode() == "draining", told):
            await asyncio.sleep(settle)
        return said

    def goodbye(self, reason: str) -> None:
        """Why the block will be left, for the log: `Deregistered` will say so. Raises InvalidValue."""
        self._reconciler.goodbye = check_text("reason", reason, MAX_REASON)

    # ---- life

    async def __aenter__(self) -> Registration:
        if self.owned.turns is not None:
            raise RuntimeError("a registration is entered once; register again for another one")
        async with AsyncExitStack() as stack:
            block = await stack.enter_async_context(Block(self._broker, self._marks, whole=False))
            block.add(self.owned)
            await self._wait_a_little()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._stack is not None
        return await self._stack.__aexit__(kind, error, trace)

    async def _wait_a_little(self) -> None:
        if self._wait <= 0:
            return
        if not await self._reconciler.notice.until(lambda: self.state != "registering", self._wait):
            log.warning("%s: not registered within %g s%s; it goes on behind", self.key, self._wait, self._why())

    # ---- helpers

    async def _want(self, wanted: Standing) -> bool:
        self.raise_if_ended()
        faster = wanted.description.heartbeat < self.owned.interval()
        number = self._reconciler.want(wanted)
        if faster:
            self.owned.beat_now()
        settled = await self._reconciler.notice.until(
            lambda: self._reconciler.settled >= number or self._end() is not None, self._wait
        )
        self.raise_if_ended()
        if not settled:
            log.warning(
                "%s: a change is not in the log within %g s%s; it goes on behind", self.key, self._wait, self._why()
            )
        return settled

    def _end(self) -> LifeEnded | None:
        if self._reconciler.end is not None:
            return self._reconciler.end
        return LifeEnded(self.key, self.term) if self.owned.closed else None

    def _told_mode(self) -> Mode | None:
        told = self._reconciler.told
        return told.mode if isinstance(told, Instance) and told.term == self.term else None

    def _why(self) -> str:
        reason = self._reconciler.outage.reason
        return f" ({reason})" if reason else ""
