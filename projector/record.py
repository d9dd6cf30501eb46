"""The record of a live instance: what the fold makes of its events, and what the catalog stores a row of."""

from __future__ import annotations

import msgspec

from adsum.events.description import Description
from adsum.events.lifecycle import Health, Mode
from adsum.events.names import Key
from adsum.events.signals import Departed, Instance, Liveness

__all__ = ["Record", "departed", "instance_of"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One life as of `revision`, the sequence of the event that last changed it.

    `last` is the sequence of the last message on its subject, whether or not that changed anything: the next
    verdict is conditional on it. Times are the broker's, in seconds since 1970, to be shown and never compared.
    """

    key: Key
    term: str
    revision: int
    last: int
    description: Description
    liveness: Liveness = "up"
    health: Health = "passing"
    mode: Mode = "serving"
    reason: str = ""
    registered_at: float
    changed_at: float


def instance_of(record: Record, epoch: str) -> Instance:
    """The topology message that tells of a record."""
    said = record.description
    return Instance(
        epoch=epoch,
        revision=record.revision,
        namespace=record.key.namespace,
        service=record.key.service,
        id=record.key.id,
        term=record.term,
        endpoints=said.endpoints,
        capabilities=said.capabilities,
        metadata=said.metadata,
        version=said.version,
        zone=said.zone,
        weight=said.weight,
        heartbeat=said.heartbeat,
        ttl=said.ttl,
        liveness=record.liveness,
        health=record.health,
        mode=record.mode,
        reason=record.reason,
        registered_at=record.registered_at,
    )


def departed(key: Key, term: str, revision: int, reason: str, epoch: str) -> Departed:
    """The topology message that tells that a life ended at `revision`."""
    return Departed(
        epoch=epoch,
        revision=revision,
        namespace=key.namespace,
        service=key.service,
        id=key.id,
        term=term,
        reason=reason,
    )
