"""One term of office: what only the leader does, from its election until it loses the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from adsum.events.broker import Broker
from adsum.events.outage import Outage
from adsum.events.signals import Tick

from .announcer import Announcer
from .leader import Leader
from .marks import MARK_INTERVAL, mark_round
from .prober import Prober
from .projection import Projection
from .reaper import Reaper

__all__ = ["Term"]


class Term:
    """Announces, judges, probes and marks for as long as `run` goes on; it ends by being cancelled, or with an error.

    `take_up`: the catalog is shared, so the projection begins here and ends with the term. `probes`: whether it looks
    for itself who cannot be reached.
    """

    def __init__(
        self,
        broker: Broker,
        projection: Projection,
        epoch: str,
        leader: Leader,
        open_verdicts: Callable[[], Broker],
        *,
        take_up: bool,
        probes: bool,
    ) -> None:
        self._broker, self._projection, self._take_up = broker, projection, take_up
        self._announcer = Announcer(broker, projection.catalog, projection.writer, epoch, leader.lease)
        self._open_verdicts, self._leader = open_verdicts, leader
        self._reaper: Reaper | None = None
        self._caught_up = False
        self._prober = Prober(broker, projection.writer, open_verdicts, leader) if probes else None

    def ticked(self) -> None:
        """A tick was read."""
        if self._reaper is not None:
            self._reaper.ticked()

    @property
    def outages(self) -> tuple[Outage, ...]:
        """All that may fail in it for a while."""
        return *self._announcer.outages, *(self._prober.outages if self._prober is not None else ())

    def report(self, tick: Tick) -> Tick:
        """The tick with what was counted in it."""
        return self._prober.counts(tick) if self._prober is not None else tick

    @property
    def works(self) -> bool:
        """Whether its catalog took all that the log had said when it began, and what was heard."""
        return self._caught_up and self._projection.flushed

    async def run(self) -> None:
        """Lead: judge and announce once the fold has reached what is the log's end now."""
        projection = self._projection
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._take_up:
                    await projection.take_up()
                    tasks.create_task(projection.run(), name="projection")
                await projection.writer.reached(await projection.writer.log_end())
                self._caught_up = True
                self._announcer.know(str(namespace) for (namespace,) in await projection.catalog.rows("namespaces"))
                self._reaper = Reaper(
                    projection.writer, projection.beats, projection.guard, self._open_verdicts, self._leader
                )
                projection.listen(self._announcer.committed, self._reaper.committed)
                tasks.create_task(self._announcer.run(), name="announcer")
                tasks.create_task(self._reaper.run(), name="reaper")
                tasks.create_task(self._mark(), name="marks")
                if self._prober is not None:
                    tasks.create_task(self._prober.run(), name="prober")
        finally:
            projection.listen()

    async def _mark(self) -> None:
        round = 0
        while True:
            await self._announcer.complete.wait()
            await self._leader.lease.held()
            if self._projection.writer.behind:  # what is announced is not what is in the log: it proves nothing
                await asyncio.sleep(MARK_INTERVAL)
                continue
            self._projection.announced = self._announcer.revision
            round += 1
            await mark_round(self._broker, self._announcer.mirror.announced, round)
