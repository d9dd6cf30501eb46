"""A program as a child, registered while it lives; and the order in which the two end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Sequence

import msgspec

from adsum.clients.port import LOCAL, accepts, is_here, stays_open
from adsum.clients.registry import Registry, connect
from adsum.events.description import Endpoint

from .child import Child
from .interrupts import ENDING, PASSED_ON, Interrupt, Interrupts
from .options import Where
from .output import note
from .presence import Plan, Presence
from .session import Failed

__all__ = ["keep", "wrap"]

SURVIVAL = 5.0
"""Seconds after Ctrl-C after which a program that still runs is taken to go on."""
PING = 2.0
SETTLE = 1.0
"""Seconds that a program must live before a port that was open already is taken for its own."""


async def wrap(where: Where, plan: Plan, command: Sequence[str]) -> int:
    """Run `command`, registered as `plan` says while it lives; its exit code. Raises CannotStart, InvalidValue,
    Failed if its port is somebody else's."""
    with Interrupts((*ENDING, *PASSED_ON)) as interrupts:
        taken = await _taken(plan)
        async with _connected(where, plan) as registry:
            child = await Child.start(command, interrupts.taken, _environment(where, plan))
            if taken:
                await asyncio.wait([child.exited], timeout=SETTLE)
            presence = Presence(registry, plan)
            presence.over.add_done_callback(lambda over: _tell(over, f"{command[0]} goes on, unregistered"))
            try:
                return await _Life(child, presence, plan.drain_wait).until_end(interrupts)
            finally:
                await presence.leave(child.ending)


async def keep(where: Where, plan: Plan) -> int:
    """Registered as `plan` says until a signal comes: 0, or 130 after Ctrl-C. Raises Failed if others end it."""
    with Interrupts((*ENDING, signal.SIGHUP)) as interrupts:
        async with _connected(where, plan) as registry:
            presence = Presence(registry, msgspec.structs.replace(plan, wait_for_port=False))
            coming = asyncio.create_task(interrupts.next())
            await asyncio.wait([coming, presence.over], return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                raise Failed(presence.over.result() or "no longer registered")
            came = coming.result()
            if came.signal == signal.SIGTERM and await presence.drain():
                hurried = asyncio.create_task(interrupts.next())
                await asyncio.wait([hurried], timeout=plan.drain_wait)
                hurried.cancel()
            await presence.leave(_wish(came))
            return 130 if came.signal == signal.SIGINT else 0


def _connected(where: Where, plan: Plan) -> Registry:
    ping = min(PING, plan.described.heartbeat / 2)
    return connect(where.settings, namespace=where.namespace, name=f"adsum@{socket.gethostname()}", ping=ping)


async def _taken(plan: Plan) -> bool:
    """Whether somebody listens at the port before the program does; Failed if that cannot be meant.

    One who is about to end (a run before this one) is given a moment. What --host names may be another machine, one
    that forwards to this one: that its port is open already proves nothing.
    """
    hosts = [plan.host] if plan.host else LOCAL
    if not plan.wait_for_port or await accepts(hosts, plan.port) is None:
        return False
    if plan.port_shared or (plan.host and not await is_here(plan.host)):
        return True
    host = await stays_open(hosts, plan.port, SETTLE)
    if host is None:
        return False
    raise Failed(
        f"port {plan.port} is taken: something accepts connections at {Endpoint(host=host, port=plan.port).address} "
        "already, so the program was not started (--port-shared where it shares the port)"
    )


def _environment(where: Where, plan: Plan) -> dict[str, str]:
    """What the program is told of its registration."""
    return os.environ | {
        "ADSUM_ID": plan.id,
        "ADSUM_SERVICE": plan.service,
        "ADSUM_NAMESPACE": where.namespace,
        "ADSUM_PORT": str(plan.port),
        "ADSUM_NATS": where.settings.url,
    }


def _wish(interrupt: Interrupt) -> str:
    """Why it ends, as the log shall say, when somebody asked for it."""
    known = {signal.SIGTERM: "stopped", signal.SIGINT: "interrupted"}
    return known.get(interrupt.signal, f"stopped ({interrupt.signal.name})")


def _tell(over: asyncio.Task[str | None], consequence: str) -> None:
    """A registration that ended by itself, whatever the reason, is said; it takes nothing down."""
    if over.cancelled():
        return
    error = over.exception()
    why = over.result() if error is None else f"unexpected {type(error).__name__}: {error}"
    if why:
        note(f"{why}; {consequence}")


class _Life:
    """A child from its start to its end."""

    def __init__(self, child: Child, presence: Presence, drain_wait: float) -> None:
        self._child, self._presence, self._drain_wait = child, presence, drain_wait
        self._goodbye: asyncio.Task[None] | None = None
        self._why = ""

    async def until_end(self, interrupts: Interrupts) -> int:
        """Act on signals until the child has ended; its exit code."""
        coming = asyncio.create_task(interrupts.next())
        while self._child.running:
            await asyncio.wait([coming, self._child.exited], return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                await self._act(coming.result())
                coming = asyncio.create_task(interrupts.next())
        await _cancel(coming)
        if self._goodbye is not None:
            await _cancel(self._goodbye)
        await self._presence.leave(self._why or self._child.ending)
        return self._child.exited.result()

    async def _act(self, interrupt: Interrupt) -> None:
        if interrupt.signal in PASSED_ON:
            self._pass_on(interrupt)
        elif self._goodbye is None:
            self._why = _wish(interrupt)
            self._goodbye = asyncio.create_task(self._end(interrupt), name="goodbye")
        else:  # whoever asks again is in a hurry
            await _cancel(self._goodbye)
            self._pass_on(interrupt)
            self._goodbye = asyncio.create_task(self._presence.leave(self._why), name="goodbye")

    async def _end(self, interrupt: Interrupt) -> None:
        """Out of use, out of the registry, and only then told to stop; unless the terminal told it already."""
        if not interrupt.shared and await self._presence.drain():
            await asyncio.wait([self._child.exited], timeout=self._drain_wait)
        await self._presence.leave(self._why)
        self._pass_on(interrupt)
        if interrupt.shared:
            await self._survived()

    async def _survived(self) -> None:
        """Some programs take Ctrl-C for something else; who sits there should know."""
        await asyncio.wait([self._child.exited], timeout=SURVIVAL)
        if self._child.running:
            note("the program goes on after Ctrl-C, unregistered")

    def _pass_on(self, interrupt: Interrupt) -> None:
        if not interrupt.shared:
            self._child.send(interrupt.signal)


async def _cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
