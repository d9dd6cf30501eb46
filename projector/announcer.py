"""The announcer: tells in ADSUM_TOPOLOGY what the catalog holds, for the broker to republish as changes.

It follows the stream it writes, so it knows the last message of every subject and publishes only on the condition
that it still is. When it begins it compares the whole and publishes only the differences; what it did not write itself
it corrects, what somebody threw away it tells again; a message of the same epoch that is above its own checkpoint it
leaves alone until it got there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from adsum.events import subjects
from adsum.events.backoff import backoff
from adsum.events.broker import Broker, WrongLastSequence
from adsum.events.codec import encode
from adsum.events.errors import BrokerRefused, BrokerUnavailable
from adsum.events.following import follow
from adsum.events.names import Key
from adsum.events.outage import BROKER_REMEDY, Outage
from adsum.events.reader import Message, ReaderLost, StreamReader
from adsum.events.signals import Departed, Instance, Topology
from adsum.events.streams import TOMBSTONE_TTL, TOPOLOGY

from .catalog import Catalog
from .errors import CatalogUnavailable
from .failpoints import passed
from .fold import Batch
from .leader import Lease
from .mirror import Mirror, Stored
from .record import departed, instance_of
from .writer import Writer

__all__ = ["Announcer", "is_ahead", "is_news"]

TOGETHER = 500
ACKNOWLEDGED_WITHIN = 5.0
UNKNOWN_END = (1 << 64) - 1
LOOK_EVERY = 5.0
REST = 60.0
"""Seconds between two looks for states that are missing, and after one that read the whole for nothing."""

log = logging.getLogger("adsum.announcer")


def is_news(stored: Stored | None, told: Topology) -> bool:
    """Whether `told` is to replace what is stored, being no less than that. Pure.

    A tombstone where nothing is stored tells nobody anything.
    """
    present = isinstance(told, Instance)
    if stored is None:
        return present
    return (stored.epoch, stored.revision, stored.present) != (told.epoch, told.revision, present)


def is_ahead(stored: Stored | None, epoch: str, checkpoint: int, end: int) -> bool:
    """Whether what is stored was said by somebody who has folded more of this log than up to `checkpoint`. Pure.

    A revision beyond the log's `end` is nobody's.
    """
    return stored is not None and stored.epoch == epoch and checkpoint < stored.revision <= end


class Announcer:
    """Announces for as long as it runs; only the leader runs it.

    `complete` is set once everything up to `revision` was told, and until the stream has to be read anew.
    """

    def __init__(self, broker: Broker, catalog: Catalog, writer: Writer, epoch: str, lease: Lease) -> None:
        self._broker, self._catalog, self._writer, self._epoch = broker, catalog, writer, epoch
        self._lease = lease
        self._departed: dict[Key, Departed] = {}
        self._due: dict[Key, None] = {}
        self._ahead: set[Key] = set()
        self._delays = backoff(first=0.02)
        self._wake, self._whole = asyncio.Event(), asyncio.Event()
        self._reading = Outage(log, "reading the topology", BROKER_REMEDY)
        self._outage = Outage(log, "announcing", BROKER_REMEDY)
        self._now = asyncio.get_running_loop().time
        self.mirror = Mirror(epoch)
        self.complete = asyncio.Event()
        self.revision = 0

    @property
    def outages(self) -> tuple[Outage, ...]:
        """All that may fail in it for a while."""
        return self._outage, self._reading

    def know(self, namespaces: Iterable[str]) -> None:
        """These had instances once: they are marked also where the topology has forgotten all of them."""
        for namespace in namespaces:
            self.mirror.announced.namespaces.setdefault(namespace, 0)

    def committed(self, batch: Batch) -> None:
        """The writer stored a batch: what it changed is due."""
        for version in batch.versions:
            if version.after is None:
                gone = departed(version.key, version.term, version.sequence, version.cause, self._epoch)
                self._departed[version.key] = gone
            else:
                self._departed.pop(version.key, None)
            self._due[version.key] = None
        self._due.update(dict.fromkeys(self._ahead))
        self._ahead.clear()
        self._wake.set()

    async def run(self) -> None:
        """Announce until cancelled, comparing the whole whenever the stream has to be read anew."""
        async with asyncio.TaskGroup() as tasks:
            following = follow(self._broker, TOPOLOGY, self._read, outage=self._reading, before=self._begin_anew)
            tasks.create_task(following, name="announcer: follow")
            tasks.create_task(self._announce(), name="announcer: announce")
            tasks.create_task(self._look_for_missing(), name="announcer: look for missing")

    # ---- what is stored

    async def _begin_anew(self) -> int:
        """What was known of the stream may be false now. Namespaces that had instances are still to be marked."""
        self._whole.clear()
        self.complete.clear()
        namespaces = self.mirror.announced.namespaces
        self.mirror = Mirror(self._epoch)
        self.mirror.announced.namespaces |= namespaces
        return 1

    async def _read(self, messages: Sequence[Message]) -> None:
        now = self._now()
        changed = [key for message in messages if (key := self.mirror.saw(message, now)) is not None]
        if not messages:  # the end: compare the whole
            changed = [*self._writer.records, *self.mirror.present()]
            self._whole.set()
        if self._whole.is_set():
            self._due.update(dict.fromkeys(changed))
            self._wake.set()

    async def _look_for_missing(self) -> None:
        """No message tells that states were thrown away (a purge): compare now and then how many there are."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                in_vain = self._whole.is_set() and await self._fewer_than_known() and not await self._find_missing()
            except (BrokerUnavailable, BrokerRefused, ReaderLost) as error:
                log.debug("looking for missing states: %s", error)
                continue
            await asyncio.sleep(REST if in_vain else 0)  # some tombstones aged out, no more

    async def _fewer_than_known(self) -> bool:
        """By what was known before the question: what is told while it is asked is not in the answer."""
        known = self.mirror.count
        info = await self._broker.stream_info(TOPOLOGY)
        self.mirror.forget_tombstones(self._now())
        return info is not None and info.state.messages < min(known, self.mirror.count)

    async def _find_missing(self) -> bool:
        """Read the whole: what is missing is forgotten, and due if it is of somebody present; whether any such is."""
        known = self.mirror.keys()
        async with StreamReader(self._broker, TOPOLOGY) as reader:
            while messages := await reader.to_end():
                known -= {subjects.key_of(message.subject) for message in messages}
        missing = [key for key in known if key in self._writer.records]
        if missing:
            log.warning("%d states were thrown away by somebody; telling them again", len(missing))
        for key in known:
            self.mirror.forget(key)
        self._due.update(dict.fromkeys(missing))
        self._wake.set()
        return bool(missing)

    # ---- what is due

    async def _announce(self) -> None:
        while True:
            await self._whole.wait()
            self._wake.clear()
            checkpoint = self._writer.checkpoint.sequence
            try:
                await self._announce_due(checkpoint)
            except (BrokerUnavailable, BrokerRefused, CatalogUnavailable) as error:
                self._outage.goes_on(error)
                await asyncio.sleep(next(self._delays))
                continue
            self.mirror.forget_tombstones(self._now())
            if not self._due and self._whole.is_set():
                self.revision = checkpoint
                self.complete.set()
                await self._wake.wait()

    async def _announce_due(self, checkpoint: int) -> None:
        due = list(islice(self._due, TOGETHER))
        await self._learn_departures(due)
        beyond = any(is_ahead(self.mirror.of(key), self._epoch, checkpoint, UNKNOWN_END) for key in due)
        end = await self._writer.log_end() if beyond else checkpoint
        told: dict[Key, tuple[Topology, dict[str, str]]] = {}
        for key in due:
            self._due.pop(key, None)
            if is_ahead(self.mirror.of(key), self._epoch, checkpoint, end):
                self._ahead.add(key)  # to be looked at again once the fold has come further
            elif (news := self._news(key)) is not None:
                told[key] = news, self._headers(key, news)
        if told:
            await self._publish(told)

    async def _learn_departures(self, due: Iterable[Key]) -> None:
        """How those left that are stored as present and are not in the catalog."""
        strays = [key for key in due if self._is_stray(key)]
        if not strays:
            return
        known = await self._catalog.departures(strays)
        for key in strays:  # one that the catalog never knew is another log's, or nobody's
            term, sequence, cause = known.get(key, ("", self._writer.checkpoint.sequence, "unknown"))
            self._departed.setdefault(key, departed(key, term, sequence, cause, self._epoch))

    def _is_stray(self, key: Key) -> bool:
        stored = self.mirror.of(key)
        present = stored is not None and stored.present
        return present and key not in self._writer.records and key not in self._departed

    def _news(self, key: Key) -> Topology | None:
        record = self._writer.records.get(key)
        told: Topology | None = self._departed.get(key) if record is None else instance_of(record, self._epoch)
        if told is not None and is_news(self.mirror.of(key), told):
            return told
        self._departed.pop(key, None)
        return None

    # ---- publishing

    async def _publish(self, told: Mapping[Key, tuple[Topology, dict[str, str]]]) -> None:
        """Publish these together, each on the condition under which that was decided, then take each acknowledgement.

        What was not acknowledged is due again.
        """
        sent: list[tuple[Topology, asyncio.Future[int]]] = []
        passed("before announce")
        try:
            for key, (message, headers) in told.items():
                await self._lease.held()
                future = await self._broker.store_later(TOPOLOGY, subjects.topology(key), encode(message), headers)
                sent.append((message, future))
            await asyncio.wait([future for _, future in sent], timeout=ACKNOWLEDGED_WITHIN)
        except BaseException:
            self._due.update(dict.fromkeys(told))
            for _, future in sent:
                future.cancel()
            raise
        passed("after announce")
        failed = [message.key for message, future in sent if not self._acknowledged(message, future)]
        if failed:
            self._due.update(dict.fromkeys(failed))
            await asyncio.sleep(next(self._delays))
            await self._look_again(failed)
        else:
            self._outage.over()
            self._delays = backoff(first=0.02)

    def _headers(self, key: Key, message: Topology) -> dict[str, str]:
        stored = self.mirror.of(key)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(stored.sequence if stored else 0)}
        if isinstance(message, Departed):
            headers["Nats-TTL"] = f"{TOMBSTONE_TTL}s"
        return headers

    def _acknowledged(self, message: Topology, future: asyncio.Future[int]) -> bool:
        if not future.done():
            future.cancel()
            self._outage.goes_on(f"no acknowledgement within {ACKNOWLEDGED_WITHIN:g} s")
            return False
        try:
            sequence = future.result()
        except WrongLastSequence:
            return False
        except (BrokerUnavailable, BrokerRefused) as error:
            self._outage.goes_on(error)
            return False
        stored = Stored(sequence, message.epoch, message.revision, isinstance(message, Instance))
        self.mirror.note(message.key, stored, self._now())
        return True

    async def _look_again(self, keys: Iterable[Key]) -> None:
        """After a refusal or a silence: what does the subject hold now? (A tombstone may have aged out.)"""
        for key in keys:
            raw = await self._broker.last_message(TOPOLOGY, subjects.topology(key))
            self.mirror.forget(key)  # also where a crash set the broker's sequences back: this look is the truth
            if raw is not None:
                self.mirror.saw(Message(raw.subject or "", raw.data or b"", raw.seq or 0, 0.0), self._now())
