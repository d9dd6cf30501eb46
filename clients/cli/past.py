"""What the commands that ask about the past share: whom they ask, and how moments and people are told."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from adsum.clients.history import History
from adsum.events.durations import format_duration
from adsum.events.errors import BrokerRefused, BrokerUnavailable, QuestionRefused
from adsum.events.lifecycle import Author
from adsum.events.questions import MOST_ROWS, EventsAsked, Moment, Version
from adsum.events.signals import Instance

from .moments import local
from .options import Where
from .output import brief, iso
from .session import reading

__all__ = ["Instant", "asking", "instance_of", "instant", "known", "percent", "span", "who"]


class Instant(NamedTuple):
    """A moment that was answered: the revision it came to, and its time, where that is known."""

    revision: int
    time: float | None

    def __str__(self) -> str:
        if self.time is None:
            return f"@{self.revision}" if self.revision else "the beginning of the log"
        digits = "seconds" if self.time.is_integer() else "milliseconds"
        return f"{local(self.time, digits=digits)} ({f'@{self.revision}' if self.revision else 'before the log'})"

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of JSON."""
        return {"revision": self.revision, "time": iso(self.time) if self.time is not None else None}


@asynccontextmanager
async def asking(where: Where) -> AsyncIterator[History]:
    """Whichever adsumd answers. Raises BrokerUnavailable if there is no broker within the command's timeout."""
    async with reading(where) as broker:
        yield History(broker, where.timeout)


async def instant(history: History, namespace: str, moment: Moment, revision: int) -> Instant:
    """When a moment was that came to `revision`: the time that was asked, else that of the event there."""
    if moment.time is not None or revision == 0:
        return Instant(revision, moment.time)
    if moment.revision is None:
        return Instant(revision, time.time())
    since, until = Moment(revision=revision - 1), Moment(revision=revision)
    for of in (namespace, ""):  # all of them last: not everybody may ask about others
        with contextlib.suppress(QuestionRefused, BrokerRefused, BrokerUnavailable):
            async for logged in history.events(EventsAsked(namespace=of, since=since, until=until)):
                return Instant(revision, logged.time)
    return Instant(revision, None)


async def known(history: History, namespace: str, until: Moment, service: str = "") -> AsyncIterator[tuple[str, str]]:
    """The service and the id of each instance that registered up to a moment, as far as that is kept."""
    asked = EventsAsked(namespace=namespace, service=service, types=("registered",), until=until, limit=MOST_ROWS)
    async for logged in history.events(asked):
        yield logged.service, logged.id


def instance_of(version: Version, epoch: str) -> Instance:
    """A version as the topology told it while it held."""
    described = msgspec.structs.asdict(version.description)
    return Instance(
        epoch=epoch,
        revision=version.began_revision,
        **version.key._asdict(),
        term=version.term,
        **described,
        liveness=version.liveness,
        health=version.health,
        mode=version.mode,
        reason=version.reason,
        registered_at=version.registered_at,
    )


def who(by: Author) -> str:
    """Who said something, inside a sentence; of a daemon's name as much as tells one daemon from others."""
    called = {"owner": "its owner", "operator": "an operator", "reaper": "the reaper", "prober": "the prober"}.get(
        by.kind, by.kind
    )
    name = brief(by.name.partition("/")[0]) if by.kind in ("reaper", "prober") else by.name
    return f"{called} ({name})" if name else called


def span(seconds: float) -> str:
    """A length of time as people tell it: "4.2s", "2h3m5s"."""
    return format_duration(round(seconds, 1) if seconds < 10 else round(seconds))


def percent(share: float) -> str:
    """A share as a percentage, cut and not rounded: only what is whole is "100%"."""
    return f"{math.floor(share * 10_000) / 100:.2f}%" if share < 1 else "100%"
