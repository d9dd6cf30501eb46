"""Being in the registry on behalf of something else: wait for its port, register, beat, leave."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from adsum.clients.errors import LifeEnded
from adsum.clients.port import LOCAL, opened
from adsum.clients.registration import Registration
from adsum.clients.registry import Registry
from adsum.events.description import Description
from adsum.events.errors import AdsumError

from .output import note
from .shown import address

__all__ = ["Plan", "Presence"]

PATIENCE = 5.0
"""Seconds without an open port after which that is said, once."""
WAIT = 3.0
"""Seconds that registering and draining may take before that is said; they go on behind."""
LEAVE_LIMIT = 8.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to register and how. `host` None: this machine as the broker sees it. Seconds.

    `port_shared`: somebody else may listen there before the program does.
    """

    service: str
    id: str
    host: str | None
    described: Description
    wait_for_port: bool
    port_shared: bool
    drain_wait: float

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.described.endpoints[0].port


class Presence:
    """One registration for as long as it is wanted. It never ends what it speaks for.

    `over` is done once it has left, and gives None, or why it ended by itself.
    """

    def __init__(self, registry: Registry, plan: Plan) -> None:
        self._registry, self._plan = registry, plan
        self._me: Registration | None = None
        self._leaving = asyncio.Event()
        self._goodbye = ""
        self.over: asyncio.Task[str | None] = asyncio.create_task(self._run(), name="presence")

    async def drain(self) -> bool:
        """Tell others to send no more work; whether that was news to anybody. Bounded."""
        if self._me is None or self._me.state != "registered" or self._me.standing.mode != "serving":
            return False
        try:
            return await self._me.drain("stopping", settle=0)
        except LifeEnded:
            return False

    async def leave(self, why: str) -> None:
        """Deregister and say why. Idempotent, the first `why` counts; bounded: what cannot be said lapses by itself."""
        self._goodbye = self._goodbye or why
        self._leaving.set()
        await asyncio.wait([self.over], timeout=LEAVE_LIMIT)
        self.over.cancel()
        await asyncio.gather(self.over, return_exceptions=True)

    async def _run(self) -> str | None:
        if self._plan.wait_for_port and await self._until_leaving(self._open()) is None:
            return None
        try:
            async with self._register() as me:
                self._me = me
                told = await self._until_leaving(self._stay(me))
                me.goodbye(self._goodbye)
                return told
        except AdsumError as error:
            return f"not registered: {error}"
        finally:
            self._me = None
        return None

    def _register(self) -> Registration:
        plan, said = self._plan, self._plan.described
        return self._registry.register(
            plan.service,
            port=plan.port,
            host=plan.host,
            id=plan.id,
            protocol=said.endpoints[0].protocol,
            capabilities=said.capabilities,
            metadata=said.metadata,
            version=said.version,
            zone=said.zone,
            weight=said.weight,
            heartbeat=said.heartbeat,
            ttl=said.ttl,
            wait=WAIT,
        )

    async def _stay(self, me: Registration) -> str:
        """Until others end the registration: why."""
        try:
            await me.registered()
        except LifeEnded as end:
            return str(end)
        note(f"registered {me.key} at {address(me.description)}")
        return str(await me.ended())

    async def _until_leaving(self, work: Coroutine[Any, Any, str]) -> str | None:
        """What `work` gives; None if it was told to leave before."""
        working = asyncio.create_task(work)
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)

    async def _open(self) -> str:
        """Wait for the port, saying so once if it takes long; the host at which it opened."""
        waiting = asyncio.create_task(opened(self._hosts, self._plan.port))
        try:
            done, _ = await asyncio.wait([waiting], timeout=PATIENCE)
            if not done:
                where = f"port {self._plan.port} of {' or '.join(self._hosts())}"
                note(f"nothing accepts connections at {where} yet, so it is not registered (--no-wait does not ask)")
            return await waiting
        finally:
            waiting.cancel()

    def _hosts(self) -> list[str]:
        """Where its port may be open: the host that was named, else any address of this machine that we know."""
        if self._plan.host is not None:
            return [self._plan.host]
        seen = self._registry.broker.local_host
        return [*dict.fromkeys([*([seen] if seen else []), *LOCAL])]
