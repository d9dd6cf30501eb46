"""Marks: what a complete cache of each service holds, said every two seconds, so that a cache can prove itself.

A round is a mark for each service that has instances, then one for the namespace that ends it; a service without a
mark of the round is empty. The digests are over what was announced, for no cache can know more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.digest import Digest
from adsum.events.errors import BrokerUnavailable
from adsum.events.names import Key
from adsum.events.signals import NamespaceMark, ServiceMark

__all__ = ["MARK_INTERVAL", "Announced", "mark_round"]

MARK_INTERVAL = 2.0
"""Seconds between two rounds of marks."""
DEFAULT_NAMESPACE = "default"

log = logging.getLogger("adsum.marks")


class Announced:
    """The digest of each service and the highest revision told of it, kept up to date in constant time."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self._services: dict[tuple[str, str], tuple[Digest, int]] = {}
        self.namespaces: dict[str, int] = {DEFAULT_NAMESPACE: 0}

    def replace(self, key: Key, before: int | None, after: int | None, told: int) -> None:
        """The instance stood at revision `before` and stands at `after`; None: it is not there.

        `told` is the revision of the message, also of a tombstone; 0 if it is not of this epoch.
        """
        service = (key.namespace, key.service)
        digest, revision = self._services.get(service, (None, 0))
        digest = digest or Digest()
        if before is not None:
            digest.remove(key.id, before)
        if after is not None:
            digest.add(key.id, after)
        if digest.count:
            self._services[service] = digest, max(revision, told)
        else:
            self._services.pop(service, None)
        self.namespaces[key.namespace] = max(self.namespaces.get(key.namespace, 0), told)

    def messages(self, round: int) -> Iterator[tuple[str, ServiceMark | NamespaceMark]]:
        """(subject, mark) of one round, in the order in which they are to be sent."""
        for (namespace, service), (digest, revision) in self._services.items():
            mark = ServiceMark(
                epoch=self.epoch, round=round, revision=revision, count=digest.count, digest=digest.hex()
            )
            yield subjects.service_mark(namespace, service), mark
        for namespace, revision in self.namespaces.items():
            yield subjects.namespace_mark(namespace), NamespaceMark(epoch=self.epoch, round=round, revision=revision)


async def mark_round(broker: Broker, announced: Announced, round: int) -> None:
    """Send one round of marks; a broker that is away gets the next one."""
    try:
        for subject, mark in list(announced.messages(round)):
            await broker.publish(subject, encode(mark))
    except BrokerUnavailable as error:
        log.debug("no marks: %s", error)
    await asyncio.sleep(MARK_INTERVAL)
