"""The projector's side of a directory, played over the real broker: topology messages and rounds of marks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.description import Endpoint
from adsum.events.digest import Digest
from adsum.events.errors import BrokerUnavailable
from adsum.events.names import Key
from adsum.events.signals import Departed, Instance, NamespaceMark, ServiceMark, Topology
from adsum.events.streams import TOPOLOGY

__all__ = ["Announcer", "instance"]

HERE = (Endpoint(host="127.0.0.1", port=1),)


def instance(service: str, id: str, revision: int, epoch: str = "e1", **fields: object) -> Instance:
    """An instance as the projector tells of it."""
    plain = Instance(
        epoch=epoch,
        revision=revision,
        namespace="default",
        service=service,
        id=id,
        term="t",
        endpoints=HERE,
        heartbeat=5.0,
        ttl=15.0,
    )
    return msgspec.structs.replace(plain, **fields)


class Announcer:
    """`present` is what it told of; `marks()` says one round about it, `marking()` one after the other meanwhile."""

    def __init__(self, broker: Broker, epoch: str = "e1") -> None:
        self.broker, self.epoch, self.round = broker, epoch, 0
        self.present: dict[Key, Instance] = {}
        self.told: dict[str, int] = {}

    async def tell(self, told: Topology) -> None:
        """Announce a state or a tombstone."""
        await self.broker.store(TOPOLOGY, subjects.topology(told.key), encode(told), {})
        self.note(told)

    def note(self, told: Topology) -> None:
        """Count it as announced without a message, as if the message was lost."""
        self.told[told.service] = max(self.told.get(told.service, 0), told.revision)
        if isinstance(told, Instance):
            self.present[told.key] = told
        else:
            self.present.pop(told.key, None)

    async def put(self, service: str, id: str, revision: int, **fields: object) -> Instance:
        """Announce an instance."""
        told = instance(service, id, revision, self.epoch, **fields)
        await self.tell(told)
        return told

    async def end(self, service: str, id: str, revision: int) -> None:
        """Announce that an instance left."""
        await self.tell(
            Departed(epoch=self.epoch, revision=revision, namespace="default", service=service, id=id, term="t")
        )

    async def marks(self, encode: Callable[[ServiceMark | NamespaceMark], bytes] = encode) -> None:
        """One round."""
        self.round += 1
        digests: dict[str, Digest] = {}
        for told in self.present.values():
            digests.setdefault(told.service, Digest()).add(told.id, told.revision)
        for service, digest in digests.items():
            revision = self.told[service]
            mark = ServiceMark(
                epoch=self.epoch, round=self.round, revision=revision, count=digest.count, digest=digest.hex()
            )
            await self.broker.publish(subjects.service_mark("default", service), encode(mark))
        end = NamespaceMark(epoch=self.epoch, round=self.round, revision=max(self.told.values(), default=0))
        await self.broker.publish(subjects.namespace_mark("default"), encode(end))

    @asynccontextmanager
    async def marking(
        self, encode: Callable[[ServiceMark | NamespaceMark], bytes] = encode, every: float = 0.1
    ) -> AsyncIterator[None]:
        """Rounds of marks for as long as the block runs."""

        async def rounds() -> None:
            while True:
                if self.broker.connected:
                    try:
                        await self.marks(encode)
                    except BrokerUnavailable:
                        continue
                await asyncio.sleep(every)

        task = asyncio.create_task(rounds(), name="marks")
        try:
            yield
        finally:
            task.cancel()
