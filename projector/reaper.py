"""The reaper: says in the log who fell silent, who was heard again and whose life is over, with the evidence.

Each verdict needs a last look at the life's heartbeats, because the stream keeps only the last beat of each life
and a late reader meets the tick before the newest beat. It is published at once after the look, conditional on what
the fold has seen (never on a freshly read sequence), over a connection that keeps nothing for later. So a verdict
whose reasons have passed is refused by the broker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_heartbeat
from adsum.events.errors import BrokerRefused, BrokerUnavailable, Unacknowledged, Undecodable
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Event, Expired, Lapsed, Resumed
from adsum.events.log import Outrun, say
from adsum.events.names import Key
from adsum.events.streams import BEATS

from .beats import BeatReader
from .clock import TICK_INTERVAL
from .deadlines import Deadlines
from .fold import Batch
from .guard import Guard
from .leader import Leader
from .silence import Suspicion, suspicions
from .voice import ACKNOWLEDGED_WITHIN, Voice
from .writer import Writer

__all__ = ["Reaper", "verdict"]

AT_ONCE = 64
"""Verdicts that are looked into at the same time."""
LOOK_GOOD_FOR = 2 * TICK_INTERVAL
"""Seconds from asking on, as for a tick: whoever is near enough to the broker to lead is near enough to judge."""

log = logging.getLogger("adsum.reaper")


def verdict(suspicion: Suspicion, author: Author) -> Event:
    """The event that says what was found. Pure but for the id."""
    kinds: dict[str, type[Lapsed | Resumed | Expired]] = {"lapsed": Lapsed, "resumed": Resumed, "expired": Expired}
    kind = kinds[suspicion.finding]
    return kind(id=new_id(), term=suspicion.record.term, by=author, evidence=suspicion.evidence)


class Reaper:
    """Judges after every tick for as long as it runs; only the leader runs it. `open_broker`: see Voice.

    It has to hear of each batch from when it is made on (`committed`).
    """

    def __init__(
        self, writer: Writer, beats: BeatReader, guard: Guard, open_broker: Callable[[], Broker], leader: Leader
    ) -> None:
        self._writer, self._beats, self._guard = writer, beats, guard
        self._voice = Voice(open_broker)
        self._lease, self._author = leader.lease, Author("reaper", leader.me)
        self._said: dict[Key, int] = {}
        self._deadlines = Deadlines(writer.records)
        self._ticked = asyncio.Event()

    def committed(self, batch: Batch) -> None:
        """The writer stored a batch: whom it changed is to be looked at anew."""
        for version in batch.versions:
            self._deadlines.put(version.key, 0.0)

    def ticked(self) -> None:
        """A tick was read."""
        self._ticked.set()

    async def run(self) -> None:
        """Judge until cancelled."""
        try:
            while True:
                await self._ticked.wait()
                self._ticked.clear()
                await self._judge()
        finally:
            await self._voice.close()

    async def _judge(self) -> None:
        records = self._writer.records
        self._said = {key: at for key, at in self._said.items() if key in records and records[key].last < at}
        clock = self._beats.clock.value
        found = suspicions(self._deadlines, records, self._beats.hearing, clock)
        news = [suspicion for suspicion in found if suspicion.record.key not in self._said]
        due = [suspicion for suspicion in news if suspicion.finding == "expired"]
        held_before = self._guard.holding
        living = Counter((key.namespace, key.service) for key in records) if due else Counter[tuple[str, str]]()
        admitted = self._guard.admit(due, living, clock)
        self._tell_holds(held_before)
        await self._say_all([s for s in news if s.finding != "expired"] + admitted)

    def _tell_holds(self, before: frozenset[tuple[str, str]]) -> None:
        for service in self._guard.holding - before:
            log.warning(
                "%s/%s: most of it fell silent at once; holding back its expiry for a while. "
                "If they are dead they leave when the time is up; if not, look at the network between them and NATS.",
                *service,
            )
        for service in before - self._guard.holding:
            log.warning("%s/%s: the hold on its expiry is over", *service)

    async def _say_all(self, suspicions: Iterable[Suspicion]) -> None:
        waiting = list(suspicions)
        while waiting:
            now, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
            try:
                broker = await self._voice.ready()
            except (BrokerUnavailable, BrokerRefused) as error:
                log.warning("no verdicts at the moment: %s", error)
                return
            looks = (self._look_and_say(broker, suspicion) for suspicion in now)
            failures = [found for found in await asyncio.gather(*looks, return_exceptions=True) if found is not None]
            if not await self._may_go_on(failures):
                return

    async def _may_go_on(self, failures: Sequence[BaseException]) -> bool:
        """Tell what failed. What is refused concerns one life; where nobody answers, the others need not be tried."""
        for failure in failures:
            if not isinstance(failure, BrokerUnavailable | BrokerRefused):
                raise failure
            log.warning("no verdict at the moment: %s", failure)
        if any(isinstance(failure, Unacknowledged) for failure in failures):
            await self._voice.close()  # what may still be on its way goes with the connection
        return not any(isinstance(failure, BrokerUnavailable) for failure in failures)

    async def _look_and_say(self, broker: Broker, suspicion: Suspicion) -> None:
        record = suspicion.record
        for _ in range(3):
            looked = time.monotonic()
            heard = await self._last_beat(broker, suspicion)
            if heard > suspicion.evidence.counter:
                self._beats.hearing.hear(record.term, heard, self._beats.clock.at(looked))
                if suspicion.finding != "resumed":
                    return
            current = self._writer.records.get(record.key)
            if current is None or (current.term, current.last) != (record.term, record.last):
                return  # something was said since; the next tick judges anew
            if not self._lease.holds:
                return  # this process stood still: another one may judge by now
            if time.monotonic() - looked <= LOOK_GOOD_FOR:
                await self._say(broker, suspicion)
                return
        log.warning("%s: no verdict, each look at its heartbeats took over %g s", record.key, LOOK_GOOD_FOR)

    async def _last_beat(self, broker: Broker, suspicion: Suspicion) -> int:
        record = suspicion.record
        raw = await broker.last_message(BEATS, subjects.beat(record.key, record.term))
        try:
            return decode_heartbeat(raw.data or b"").counter if raw is not None else 0
        except Undecodable:
            return 0

    async def _say(self, broker: Broker, suspicion: Suspicion) -> None:
        record = suspicion.record
        try:
            at = await say(broker, record.key, verdict(suspicion, self._author), record.last, ACKNOWLEDGED_WITHIN)
        except Outrun:
            return
        self._said[record.key] = at
        log.info("%s %s after %.1f s of silence", record.key, suspicion.finding, suspicion.evidence.silent)
        if suspicion.finding == "expired":
            self._guard.expired(suspicion, self._beats.clock.value)
