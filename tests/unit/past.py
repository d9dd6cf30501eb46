"""A log in memory, and what an adsumd would answer about it: the real fold, no catalog."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from adsum.events.codec import decode_event
from adsum.events.errors import Undecodable
from adsum.events.names import Key
from adsum.events.questions import Logged, Version
from adsum.events.reader import Message
from adsum.events.subjects import key_of
from adsum.projector.fold import fold_batch

__all__ = ["between", "events_of", "versions_of"]


def versions_of(messages: Sequence[Message]) -> list[Version]:
    """Every version that these messages began, in order."""
    found: list[Version] = []
    holding: dict[Key, int] = {}
    for step in fold_batch({}, messages).versions if messages else ():
        if step.key in holding:
            at = holding.pop(step.key)
            ending = {"ended_revision": step.sequence, "ended_at": step.time, "ended_by": step.cause}
            found[at] = msgspec.structs.replace(found[at], **ending)
        record = step.after
        if record is not None:
            holding[step.key] = len(found)
            found.append(
                Version(
                    **step.key._asdict(),
                    term=record.term,
                    began_revision=step.sequence,
                    began_at=step.time,
                    began_by=step.cause,
                    liveness=record.liveness,
                    health=record.health,
                    mode=record.mode,
                    reason=record.reason,
                    registered_at=record.registered_at,
                    description=record.description,
                )
            )
    return found


def between(messages: Sequence[Message], since: int, until: int) -> list[Version]:
    """The versions that held at some moment from one revision to another, as an adsumd answers."""
    versions = versions_of([message for message in messages if message.sequence <= until])
    return [version for version in versions if version.ended_revision is None or version.ended_revision > since]


def events_of(messages: Sequence[Message], key: Key) -> list[Logged]:
    """The events of one instance, as an adsumd answers."""
    found = []
    for message in messages:
        try:
            decode_event(message.data)
        except Undecodable:
            continue
        if key_of(message.subject) == key:
            event = msgspec.Raw(message.data)
            found.append(Logged(revision=message.sequence, time=message.time, **key._asdict(), event=event))
    return found
