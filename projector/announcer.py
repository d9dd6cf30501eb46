"""The announcer: tells in ADSUM_TOPOLOGY what the catalog holds, for the broker to republish as changes.

It follows the stream it writes, so it knows the last message of every subject and publishes only on the condition
that it still is. When it begins it compares the whole and publishes only the differences; what it did not write
itself it corrects; a message of the same epoch that is above its own checkpoint it leaves alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from adsum.events import subjects
from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.codec import decode_topology, encode
from adsum.events.errors import BrokerRefused, BrokerUnavailable, Undecodable
from adsum.events.names import Key
from adsum.events.outage import Outage
from adsum.events.reader import Message, ReaderLost, StreamReader
from adsum.events.signals import Departed, Instance, Topology
from adsum.events.streams import TOMBSTONE_TTL, TOPOLOGY

from .catalog import Catalog
from .fold import Batch
from .marks import Announced
from .record import Record, departed, instance_of
from .writer import Writer

__all__ = ["Announcer", "Stored", "is_news"]

TOGETHER = 500
ACKNOWLEDGED_WITHIN = 5.0

log = logging.getLogger("adsum.announcer")


class Stored(NamedTuple):
    """The last message of a topology subject: its sequence there, and what it tells. No epoch: it cannot be read."""

    sequence: int
    epoch: str
    revision: int
    present: bool


def is_news(stored: Stored | None, told: Topology, checkpoint: int) -> bool:
    """Whether `told` is to replace what is stored. Pure.

    Not if it is the same, nor if the stored one is of the same epoch and above `checkpoint`: then another daemon
    knows more. A tombstone where nothing is stored tells nobody anything.
    """
    present = isinstance(told, Instance)
    if stored is None:
        return present
    if stored.epoch == told.epoch and stored.revision > checkpoint:
        return False
    return (stored.epoch, stored.revision, stored.present) != (told.epoch, told.revision, present)


class Announcer:
    """Announces for as long as it runs; only the leader runs it. `announced` is what caches can know."""

    def __init__(self, broker: Broker, catalog: Catalog, writer: Writer, epoch: str) -> None:
        self._broker, self._catalog, self._writer, self._epoch = broker, catalog, writer, epoch
        self._stored: dict[Key, Stored] = {}
        self._departed: dict[Key, Departed] = {}
        self._due: dict[Key, None] = {}
        self._ahead: set[Key] = set()
        self._tombstones: deque[tuple[float, Key]] = deque()
        self._delays = backoff(first=0.02)
        self._wake = asyncio.Event()
        self._outage = Outage(log, "announcing", 15.0)
        self.announced = Announced(epoch)
        self.complete = asyncio.Event()
        self.revision = 0
        """Every change up to this revision has been announced."""

    def committed(self, batch: Batch) -> None:
        """The writer stored a batch: what it changed is due."""
        for version in batch.versions:
            if version.after is None:
                self._departed[version.key] = departed(
                    version.key, version.term, version.sequence, version.cause, self._epoch
                )
            else:
                self._departed.pop(version.key, None)
            self._due[version.key] = None
        self._due.update(dict.fromkeys(self._ahead))
        self._ahead.clear()
        self._wake.set()

    async def run(self) -> None:
        """Announce until cancelled, comparing the whole whenever the stream has to be read anew."""
        delays = backoff()
        while True:
            try:
                async with StreamReader(self._broker, TOPOLOGY) as reader:
                    await self._compare(reader)
                    delays = backoff()
                    await self._announce_and_follow(reader)
            except* (ReaderLost, BrokerUnavailable) as lost:
                log.info("comparing the whole topology again: %s", lost.exceptions[0])
            self.complete.clear()
            await asyncio.sleep(next(delays))

    async def _compare(self, reader: StreamReader) -> None:
        """Read all that is stored; what differs from the catalog is due."""
        self._stored = {}
        self.announced = Announced(self._epoch)
        while messages := await reader.to_end():
            for message in messages:
                self._saw(message)
        records = self._writer.records
        strays = [key for key, stored in self._stored.items() if stored.present and key not in records]
        for key, (term, sequence, cause) in (await self._catalog.departures(strays)).items():
            self._departed.setdefault(key, departed(key, term, sequence, cause, self._epoch))
        for key in strays:  # what is left now the catalog never knew: another log's, or nobody's
            unknown = departed(key, "", self._writer.checkpoint.sequence, "unknown", self._epoch)
            self._departed.setdefault(key, unknown)
        self._due = dict.fromkeys([*records, *strays])
        self._wake.set()

    async def _announce_and_follow(self, reader: StreamReader) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(reader), name="announcer: follow")
            tasks.create_task(self._announce(), name="announcer: announce")

    async def _follow(self, reader: StreamReader) -> None:
        while True:
            for message in await reader.batch():
                key = self._saw(message)
                if key is not None:
                    self._due[key] = None
                    self._wake.set()

    async def _announce(self) -> None:
        while True:
            checkpoint = self._writer.checkpoint.sequence
            due = self._take_due()
            told = {key: news for key in due if (news := self._news(key, checkpoint)) is not None}
            if told:
                await self._publish(told)
            self._forget_tombstones()
            if not self._due:
                self.revision = checkpoint
                self.complete.set()
                await self._wake.wait()
            self._wake.clear()

    def _forget_tombstones(self) -> None:
        """What the broker has dropped by now need not be remembered."""
        aged = asyncio.get_running_loop().time() - TOMBSTONE_TTL
        while self._tombstones and self._tombstones[0][0] < aged:
            _, key = self._tombstones.popleft()
            stored = self._stored.get(key)
            if stored is not None and not stored.present:
                del self._stored[key]

    def _take_due(self) -> list[Key]:
        due = list(self._due)[:TOGETHER]
        for key in due:
            del self._due[key]
        return due

    def _news(self, key: Key, checkpoint: int) -> Topology | None:
        record: Record | None = self._writer.records.get(key)
        told: Topology | None = self._departed.get(key) if record is None else instance_of(record, self._epoch)
        stored = self._stored.get(key)
        if told is not None and is_news(stored, told, checkpoint):
            return told
        if stored is not None and stored.epoch == self._epoch and stored.revision > checkpoint:
            self._ahead.add(key)  # to be looked at again once the fold has come that far
        else:
            self._departed.pop(key, None)
        return None

    async def _publish(self, told: Mapping[Key, Topology]) -> None:
        """Publish these together, then take each acknowledgement; what was not acknowledged is due again."""
        sent: list[tuple[Topology, asyncio.Future[int]]] = []
        try:
            for key, message in told.items():
                headers = self._headers(key, message)
                future = await self._broker.store_later(TOPOLOGY, subjects.topology(key), encode(message), headers)
                sent.append((message, future))
            await asyncio.wait([future for _, future in sent], timeout=ACKNOWLEDGED_WITHIN)
        except BaseException:
            for _, future in sent:
                future.cancel()
            raise
        failed = [message.key for message, future in sent if not self._acknowledged(message, future)]
        if failed:
            await asyncio.sleep(next(self._delays))
            await self._look_again(failed)
        else:
            self._delays = backoff(first=0.02)

    def _headers(self, key: Key, message: Topology) -> dict[str, str]:
        stored = self._stored.get(key)
        headers = {"Nats-Expected-Last-Subject-Sequence": str(stored.sequence if stored else 0)}
        if isinstance(message, Departed):
            headers["Nats-TTL"] = f"{TOMBSTONE_TTL}s"
        return headers

    def _acknowledged(self, message: Topology, future: asyncio.Future[int]) -> bool:
        if not future.done():
            future.cancel()
            self._outage.goes_on("no acknowledgement in time")
            return False
        try:
            sequence = future.result()
        except (BrokerUnavailable, BrokerRefused) as error:
            log.debug("announcing %s: %s", message.key, error)
            return False
        self._outage.over()
        key, present = message.key, isinstance(message, Instance)
        self._note(key, Stored(sequence, message.epoch, message.revision, present))
        if not present:
            self._departed.pop(key, None)
            self._tombstones.append((asyncio.get_running_loop().time(), key))
        return True

    async def _look_again(self, keys: Iterable[Key]) -> None:
        """After a refusal or a silence: what does the subject hold now? (A tombstone may have aged out.)"""
        for key in keys:
            raw = await self._broker.last_message(TOPOLOGY, subjects.topology(key))
            if raw is None:
                self._forget(key)
            else:
                self._saw(Message(raw.subject or "", raw.data or b"", raw.seq or 0, 0.0))
            self._due[key] = None

    def _saw(self, message: Message) -> Key | None:
        """Note what a message of the stream tells; its key if that is not what was known."""
        try:
            key = subjects.key_of(message.subject)
        except Undecodable:
            return None
        try:
            told = decode_topology(message.data)
            stored = Stored(message.sequence, told.epoch, told.revision, isinstance(told, Instance))
        except Undecodable as error:
            log.warning("%s holds what is no topology message: %s", message.subject, error)
            stored = Stored(message.sequence, "", 0, True)
        if self._stored.get(key) == stored:
            return None
        self._note(key, stored)
        return key

    def _note(self, key: Key, stored: Stored) -> None:
        before = self._stored.get(key)
        if before is not None and before.sequence > stored.sequence:
            return  # an acknowledgement that came after the next message was read
        self._stored[key] = stored
        self.announced.replace(key, before and (before.revision if before.present else None), _present(stored))

    def _forget(self, key: Key) -> None:
        before = self._stored.pop(key, None)
        if before is not None:
            self.announced.replace(key, before.revision if before.present else None, None)


def _present(stored: Stored) -> int | None:
    return stored.revision if stored.present else None
