"""The prober: looks for itself whether an endpoint answers that callers report as unreachable, and says what it found.

Reports only have it look (`probing` decides when); what it finds it says in the log, as the author "prober", with the
evidence: `critical` for whom it could not reach, and once it answers again the health that stood before. It speaks
only where the owner did: what an operator said of somebody's health stands, and an owner's next word replaces the
prober's. Each word is conditional on what the fold has seen, after a look at all that was said of the life.

Who is critical because of a prober stands in the log and nowhere else. So a new leader finds it there and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec
from nats.aio.msg import Msg

from adsum.events import subjects
from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.codec import decode_report
from adsum.events.description import Endpoint, health_path
from adsum.events.errors import BrokerRefused, BrokerUnavailable, Unacknowledged, Undecodable
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Health, HealthChanged, Probed
from adsum.events.log import Outrun, say
from adsum.events.names import Key
from adsum.events.outage import BROKER_REMEDY, Outage
from adsum.events.reader import ReaderLost
from adsum.events.signals import Tick

from .health import PROBER, HealthWord, last_health_word
from .leader import Leader
from .listening import listen
from .probes import Outcome, probe
from .probing import FAILURES, MOST_CALLERS, Probing, Target
from .record import Record, instance_of
from .voice import ACKNOWLEDGED_WITHIN, Voice
from .writer import Writer

__all__ = ["Prober", "room"]

LONGEST_AGO = 30.0
"""Seconds after which what a caller saw is no reason to look."""
LOOK_EVERY = 2.0
"""Seconds between two looks for those whom a leader before left critical."""
SAY_AGAIN = 1200.0
"""Seconds after which a critical is said again, so that a trim of the log, which keeps an hour, never takes it away."""
_FAILURES = (BrokerUnavailable, BrokerRefused, ReaderLost)

log = logging.getLogger("adsum.prober")


def room(up: int, critical: int) -> bool:
    """Whether one more of a service may become critical, of `up` who are up and `critical` who are it by probes.

    At most half of them, and always one: a prober whose own network is cut off finds everybody unreachable.
    """
    return critical < max(1, (up + 1) // 2)


class Prober:
    """Listens, probes and speaks for as long as it runs; only the leader runs it. `open_broker`: see Voice."""

    def __init__(self, broker: Broker, writer: Writer, open_broker: Callable[[], Broker], leader: Leader) -> None:
        self._broker, self._writer, self._voice = broker, writer, Voice(open_broker)
        self._lease, self._author = leader.lease, Author(PROBER, leader.me)
        self._probing = Probing(time.monotonic)
        self._wake = asyncio.Event()
        self._said: dict[Key, tuple[int, float]] = {}  # the sequence of our last word and when it was said
        self._condemning: set[Key] = set()
        self._looked: dict[Key, int] = {}  # the revision at which it was looked who made it critical
        remedy = "let this user subscribe to the reports of callers (docs/operations.md); all else goes on"
        self.listening = Outage(log, "listening to reports", remedy)
        self.speaking = Outage(log, "saying what probes found", BROKER_REMEDY)
        self.looking = Outage(log, "looking who is critical because of a leader before", BROKER_REMEDY)

    @property
    def outages(self) -> tuple[Outage, ...]:
        """All that may fail in it for a while."""
        return self.listening, self.speaking, self.looking

    def counts(self, tick: Tick) -> Tick:
        """The tick with what it counted."""
        probing = self._probing
        return msgspec.structs.replace(
            tick, reports=probing.reports, probes=probing.probes, unreachable=len({one.key for one in probing.held})
        )

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen(), name="reports")
                tasks.create_task(self._find_critical(), name="those a leader before left critical")
                while True:
                    for target in self._probing.begin():
                        tasks.create_task(self._look_into(target), name=f"probe {target.key}")
                    self._wake.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(self._probing.wait(), LOOK_EVERY)):
                            await self._wake.wait()
                    self._probing.tidy(lambda target: self._record(target) is not None)
                    if self._probing.idle:
                        self.speaking.over()  # whatever it was about has gone
        finally:
            await self._voice.close()

    # ---- what is heard

    async def _listen(self) -> None:
        delays = backoff(most=30.0)
        while True:
            async with AsyncExitStack() as block:
                try:
                    await listen(self._broker, block, subjects.ALL_REPORTS, self._hear)
                except (BrokerUnavailable, BrokerRefused) as error:
                    self.listening.goes_on(error)
                else:
                    self.listening.over()
                    await asyncio.Event().wait()  # the connection renews the subscription by itself
            await asyncio.sleep(next(delays))

    async def _hear(self, msg: Msg) -> None:
        try:
            key, report = subjects.key_of(msg.subject), decode_report(msg.data)
        except Undecodable:
            self._probing.count()
            return
        target = Target(key, report.term, report.endpoint)
        record = self._record(target)
        if record is None or report.ago > LONGEST_AGO or not self._is_called(record, report.endpoint):
            self._probing.count()
            return
        self._probing.heard(target, report.by)
        self._wake.set()

    def _is_called(self, record: Record, endpoint: str) -> bool:
        """Whether callers may call it at all; of anybody else no report is news."""
        return instance_of(record, "").routable and _endpoint(record, endpoint) is not None

    async def _find_critical(self) -> None:
        """Look once at each who is critical, whether it is so because of a leader before."""
        while True:
            for record in [one for one in self._writer.records.values() if self._is_to_be_looked_at(one)]:
                try:
                    found = await last_health_word(self._broker, record.key, record.term)
                except _FAILURES as error:
                    self.looking.goes_on(error)
                    break
                self._looked[record.key] = record.revision
                word = found.condemned
                if word is not None:
                    endpoint = word.evidence.endpoint if word.evidence else record.description.endpoints[0].name
                    self._said.setdefault(record.key, (found.last, time.monotonic()))
                    self._probing.hold(Target(record.key, record.term, endpoint))
            else:
                self.looking.over()
            records = self._writer.records
            self._looked = {key: at for key, at in self._looked.items() if key in records}
            self._said = {key: at for key, at in self._said.items() if key in records}
            await asyncio.sleep(LOOK_EVERY)

    def _is_to_be_looked_at(self, record: Record) -> bool:
        if record.health != "critical" or self._looked.get(record.key) == record.revision:
            return False
        return record.last >= self._said_at(record.key) and all(one.key != record.key for one in self._probing.held)

    # ---- what is found

    async def _look_into(self, target: Target) -> None:
        try:
            await self._probe(target)
            self.speaking.over()
        except Outrun:
            self._probing.again(target)
        except _FAILURES as error:
            self.speaking.goes_on(error)
            self._probing.again(target)
            if isinstance(error, Unacknowledged):
                await self._voice.close()  # what may still be on its way goes with the connection
        self._wake.set()

    async def _probe(self, target: Target) -> None:
        record = self._record(target)
        held = target in self._probing.held
        if record is None or (held and record.health != "critical" and record.last >= self._said_at(target.key)):
            self._probing.found(target, None)
            self._probing.release(target)  # its life is over, or somebody else spoke of its health
            return
        endpoint = _endpoint(record, target.endpoint)
        if endpoint is None:
            outcome = Outcome(True, "", f"the instance has no endpoint {target.endpoint} any more")
        else:
            outcome = await probe(endpoint, health_path(record.description.metadata, endpoint.name))
        callers = self._probing.callers(target)
        match self._probing.found(target, outcome.reached):
            case "unreachable":
                await self._condemn(target, outcome, callers)
            case "reachable":
                await self._take_back(target, outcome)
            case _ if held and self._is_long_said(target.key):
                await self._repeat(target)

    async def _condemn(self, target: Target, outcome: Outcome, callers: int) -> None:
        record, said = await self._settled(target)
        if said.by == "operator" or not self._is_called(record, target.endpoint):
            return  # an operator who speaks of its health knows why
        if not self._has_room(record):
            log.warning("%s: %s: %s; too many of its service are unreachable from here", record.key, *outcome[1:])
            return
        reason = f"unreachable: {outcome.tried}: {outcome.found}, {FAILURES} times; reported by {_told(callers)}"
        self._condemning.add(record.key)
        try:
            await self._say(record, self._word(target, outcome, record, "critical", reason, callers))
            self._probing.hold(target)
        finally:
            self._condemning.discard(record.key)
        log.warning("%s is critical: %s", record.key, reason)

    async def _take_back(self, target: Target, outcome: Outcome) -> None:
        record, said = await self._settled(target)
        word = said.condemned
        if word is None:
            self._probing.release(target)  # somebody else spoke of its health since
            return
        before = word.evidence or Probed(endpoint=target.endpoint, tried="", found="")
        reason = before.reason if record.reason == word.reason else record.reason  # which a change of mode may have set
        await self._say(record, self._word(target, outcome, record, before.health, reason, before.callers))
        self._probing.release(target)
        log.info("%s is %s again: %s: %s", record.key, before.health, *outcome[1:])

    async def _repeat(self, target: Target) -> None:
        record, said = await self._settled(target)
        if said.condemned is not None:
            await self._say(record, msgspec.structs.replace(said.condemned, id=new_id(), by=self._author))

    async def _settled(self, target: Target) -> tuple[Record, HealthWord]:
        """The record and what the log says, where both stand at the same word. Raises Outrun where they do not."""
        said = await last_health_word(self._broker, target.key, target.term)
        record = self._record(target)
        if record is None or said.last != record.last:
            raise Outrun(target.key, None)
        return record, said

    async def _say(self, record: Record, event: HealthChanged) -> None:
        broker = await self._voice.ready()
        if not self._lease.holds:
            raise Outrun(record.key, None)  # this process stood still: another one may judge by now
        at = await say(broker, record.key, event, record.last, ACKNOWLEDGED_WITHIN)
        self._said[record.key] = at, time.monotonic()

    # ---- helpers

    def _word(
        self, target: Target, outcome: Outcome, record: Record, health: Health, reason: str, callers: int
    ) -> HealthChanged:
        evidence = Probed(
            endpoint=target.endpoint,
            tried=outcome.tried,
            found=outcome.found,
            callers=callers,
            health=record.health,
            reason=record.reason,
        )
        return HealthChanged(
            id=new_id(), term=record.term, by=self._author, health=health, reason=reason, evidence=evidence
        )

    def _record(self, target: Target) -> Record | None:
        record = self._writer.records.get(target.key)
        return record if record is not None and record.term == target.term else None

    def _said_at(self, key: Key) -> int:
        return self._said.get(key, (0, 0.0))[0]

    def _is_long_said(self, key: Key) -> bool:
        _, when = self._said.get(key, (0, math.inf))
        return time.monotonic() - when > SAY_AGAIN

    def _has_room(self, record: Record) -> bool:
        service = record.key.namespace, record.key.service
        up = sum(
            one.liveness == "up" and (key.namespace, key.service) == service
            for key, one in self._writer.records.items()
        )
        critical = {one.key for one in self._probing.held} | self._condemning
        return room(up, sum((key.namespace, key.service) == service for key in critical))


def _endpoint(record: Record, name: str) -> Endpoint | None:
    return next((one for one in record.description.endpoints if one.name == name), None)


def _told(callers: int) -> str:
    if callers >= MOST_CALLERS:
        return f"{callers} callers or more"
    return "1 caller" if callers == 1 else f"{callers} callers"
