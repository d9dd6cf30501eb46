"""Many registrations that one process speaks for: a gateway, a bridge from another registry, a fleet of a test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from types import TracebackType

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable, InvalidValue
from adsum.events.garbage import PausedGC
from adsum.events.names import Key
from adsum.events.outage import Outage

from .keeping import TOGETHER, Block, Owned
from .marks import Marks
from .notice import Notice
from .reconciler import REMEDY
from .registration import Registration

__all__ = ["Registrations"]

PAUSED = 10.0
"""Seconds that the process goes without cyclic garbage collection at most, while all begin."""

log = logging.getLogger("adsum.registration")


class Registrations:
    """An async context manager, made by `Registry.register_many`. Inside the block all its instances are registered.

    Each is a Registration as any other (`update`, `health`, `drain`, `state`, …), but it is this block that keeps it:
    their events go in batches, one task beats for all, and one that is not changed costs no task. Each is
    registered, superseded, removed, or registered again after it expired, for itself: none holds up the others.
    What goes wrong with the broker is told once for all. Leaving says goodbye for all, at most a few seconds.
    """

    def __init__(self, broker: Broker, marks: Marks, registrations: Iterable[Registration], wait: float) -> None:
        self._given, self._wait = list(registrations), wait
        self._block = Block(broker, marks, whole=True, over=self._over)
        self._outage = Outage(log, "registrations", REMEDY)
        self._failing: set[Outage] = set()
        self._present: dict[Key, Registration] = {}
        self._ended: list[Registration] = []
        self._changed = Notice()
        self._closed = False
        self._stack: AsyncExitStack | None = None

    # ---- which there are

    def __iter__(self) -> Iterator[Registration]:
        return iter(list(self._present.values()))

    def __len__(self) -> int:
        return len(self._present)

    def get(self, service: str, id: str) -> Registration | None:
        """The registration of an instance, None if it is not here."""
        return next((one for key, one in self._present.items() if (key.service, key.id) == (service, id)), None)

    def add(self, registration: Registration) -> None:
        """Speak for one more, from now on and behind; wait with `await registration.registered()`.

        It is one that `Registry.register` made and that was not entered. Raises InvalidValue if it was, or if its id
        is here already.
        """
        if registration.owned.turns is not None:
            raise InvalidValue("registration", str(registration.key), "must not have been entered yet")
        if registration.key in self._present:
            raise InvalidValue("registration", str(registration.key), "is here already; remove the other one before")
        registration.owned.reconciler.outage = _Part(self._outage, self._failing)
        self._present[registration.key] = registration
        self._block.add(registration.owned)

    async def remove(self, registration: Registration) -> None:
        """Say goodbye for one; at most a few seconds."""
        if self._present.get(registration.key) is registration:
            del self._present[registration.key]
            await self._block.remove(registration.owned)

    # ---- waiting

    async def registered(self, timeout: float | None = None) -> None:
        """Wait until all are registered that others did not end, at most `timeout` seconds.

        Raises BrokerUnavailable with how many are not, and why.
        """
        if not await self._settled(timeout):
            raise BrokerUnavailable(self._late())

    async def ended(self) -> AsyncIterator[Registration]:
        """Each that others ended (`raise_if_ended` tells how), also before this is asked; until the block is left."""
        told = 0
        while not self._closed or told < len(self._ended):
            for one in self._ended[told:]:
                told += 1
                yield one
            await self._changed.until(lambda seen=told: len(self._ended) > seen or self._closed)  # type: ignore[misc]

    async def _settled(self, timeout: float | None) -> bool:
        """Wait for one after the other: none goes back to `registering` on the whole."""
        try:
            async with asyncio.timeout(timeout):
                for one in self:
                    await one.settled()
        except TimeoutError:
            return False
        return True

    def _late(self) -> str:
        late = sum(one.state == "registering" for one in self)
        reason = f" ({self._outage.reason})" if self._outage.reason else ""
        return f"{late} of {len(self)} are not registered yet{reason}"

    # ---- life

    async def __aenter__(self) -> Registrations:
        if self._stack is not None:
            raise RuntimeError("registrations are entered once")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._block)
            stack.callback(self._close)
            if not await self._begin() and self._wait > 0:
                log.warning("within %g s %s; it goes on behind", self._wait, self._late())
            self._stack = stack.pop_all()
        return self

    async def _begin(self) -> bool:
        """Speak for all that were given; whether all are registered within `wait`."""
        with PausedGC():  # it would walk all that is under way, again and again, and cost more than all else
            for at, one in enumerate(self._given, start=1):
                self.add(one)
                if at % TOGETHER == 0:
                    await asyncio.sleep(0)
            self._given.clear()
            if await self._settled(min(self._wait, PAUSED)):
                return True
        return self._wait > PAUSED and await self._settled(self._wait - PAUSED)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._stack is not None
        with PausedGC():
            return await self._stack.__aexit__(kind, error, trace)

    def _close(self) -> None:
        self._closed = True
        self._changed.tell()

    def _over(self, owned: Owned) -> None:
        if owned.reconciler.end is not None:
            self._ended.append(self._present[owned.key])
            self._changed.tell()


class _Part(Outage):
    """The trouble of one of many: told once, from the first that has it until the last is out of it."""

    def __init__(self, whole: Outage, failing: set[Outage]) -> None:
        super().__init__(log, "", REMEDY)
        self._whole, self._failing = whole, failing

    def goes_on(self, reason: object, already: float = 0.0) -> None:
        self.reason = str(reason)
        self._failing.add(self)
        self._whole.goes_on(reason, already)

    def over(self) -> None:
        self.reason = ""
        self._failing.discard(self)
        if not self._failing:
            self._whole.over()
