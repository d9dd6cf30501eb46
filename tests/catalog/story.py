"""A log in miniature: says events about instances, folds them with the real fold, gives the batches to store."""

from __future__ import annotations

from collections.abc import Sequence

from adsum.events.chain import GENESIS
from adsum.events.codec import encode
from adsum.events.description import Endpoint, describe
from adsum.events.ids import new_id
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Event,
    Expired,
    HealthChanged,
    Lapsed,
    Registered,
    Resumed,
    Silence,
    Updated,
)
from adsum.events.names import Key
from adsum.events.reader import Message
from adsum.events.subjects import event as subject_of
from adsum.projector.catalog import Catalog, Checkpoint
from adsum.projector.fold import Batch, fold_batch
from adsum.projector.record import Record

EPOCH = "0199d0c3-0000-7000-8000-000000000001"
BEGAN = 1_770_000_000.123456
OWNER = Author("owner", "orders-7f")
REAPER = Author("reaper", "node-1")
EVIDENCE = Silence(counter=7, silent=16.25, ttl=15.0)


class Story:
    """The log and what was folded of it. `records` are those after the last batch that `batch` gave."""

    def __init__(self) -> None:
        self.sequence = 0
        self.records: dict[Key, Record] = {}
        self.head = GENESIS
        self.terms: dict[Key, str] = {}

    def raw(self, key: Key, data: bytes) -> Message:
        """Any bytes, as the next message of the log."""
        self.sequence += 1
        return Message(subject_of(key), data, self.sequence, BEGAN + self.sequence / 1000)

    def say(self, key: Key, event: Event) -> Message:
        """An event, as the next message of the log."""
        return self.raw(key, encode(event))

    def register(self, key: Key, **said: object) -> Message:
        """The instance begins a life; `said` goes to `describe`."""
        term = self.terms[key] = new_id()
        endpoints = [Endpoint(host="10.0.0.7", port=8080, protocol="http")]
        described = describe(endpoints, **{"capabilities": ["payments"], "metadata": {"pod": "a"}, **said})  # type: ignore[arg-type]  # tests say what they like
        return self.say(key, Registered(id=term, term=term, by=OWNER, instance=described))

    def update(self, key: Key, **said: object) -> Message:
        """It describes itself anew."""
        described = describe([Endpoint(host="10.0.0.8", port=8081)], **said)  # type: ignore[arg-type]  # as above
        return self.say(key, Updated(id=new_id(), term=self.terms[key], by=OWNER, instance=described))

    def health(self, key: Key, reason: str = "", author: Author = OWNER) -> Message:
        """It becomes critical."""
        term = self.terms[key]
        return self.say(key, HealthChanged(id=new_id(), term=term, by=author, health="critical", reason=reason))

    def lapse(self, key: Key) -> Message:
        """The reaper finds it stale."""
        return self.say(key, Lapsed(id=new_id(), term=self.terms[key], by=REAPER, evidence=EVIDENCE))

    def resume(self, key: Key) -> Message:
        """It is heard again."""
        return self.say(key, Resumed(id=new_id(), term=self.terms[key], by=REAPER, evidence=EVIDENCE))

    def expire(self, key: Key) -> Message:
        """The reaper finds it gone."""
        return self.say(key, Expired(id=new_id(), term=self.terms[key], by=REAPER, evidence=EVIDENCE))

    def leave(self, key: Key) -> Message:
        """It says goodbye."""
        return self.say(key, Deregistered(id=new_id(), term=self.terms[key], by=OWNER))

    def batch(self, messages: Sequence[Message]) -> Batch:
        """What the fold makes of these messages, on top of all batches before."""
        batch = fold_batch(self.records, messages, head=self.head)
        self.head = batch.head
        for key, record in batch.changed.items():
            if record is None:
                self.records.pop(key, None)
            else:
                self.records[key] = record
        return batch

    async def tell(self, catalog: Catalog, *messages: Message) -> Checkpoint:
        """Store messages as one batch, whatever the checkpoint is."""
        expected = await catalog.checkpoint() or await catalog.begin(EPOCH)
        return await catalog.store(expected, self.batch(messages))


def key(number: int = 1, service: str = "orders", namespace: str = "default") -> Key:
    """The key of one instance among many."""
    return Key(namespace, service, f"i-{number:04}")
