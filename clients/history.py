"""History: questions about the past, put to whichever adsumd answers on the bus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable, NobodyAnswers, NotYet, QuestionRefused, Undecodable
from adsum.events.questions import (
    MOST_ROWS,
    EventsAsked,
    Logged,
    Moment,
    Page,
    Status,
    Version,
    VersionsAsked,
    WorldAsked,
    check_question,
    continued,
)
from adsum.events.refusals import error_of

__all__ = ["History"]

T = TypeVar("T")
Question: TypeAlias = VersionsAsked | WorldAsked | EventsAsked

ONE_TRY = 3.0
"""Seconds after which a question is put again: another adsumd may get it."""
TRY_AGAIN = 0.25

_NOW = Moment()
_REMEDY = "none runs on this broker, or none that may listen there; adsum status tells"
_versions = msgspec.json.Decoder(Page[Version])
_events = msgspec.json.Decoder(Page[Logged])
_status = msgspec.json.Decoder(Status)
_FACES: dict[type[Any], tuple[str, msgspec.json.Decoder[Page[Any]]]] = {
    VersionsAsked: ("history", _versions),
    WorldAsked: ("world", _versions),
    EventsAsked: ("events", _events),
}


class History:
    """What happened, as the adsumd of a broker know it. Made by `Registry.history`, or from a connection.

    `timeout`: seconds for each page; a long answer has many. The pages of one answer may come from different daemons:
    all are asked at the revision that the first one came to. Every method raises InvalidValue for a question nobody
    could answer, NotYet, BeforeLog and NoLongerKept for moments that cannot be known, NobodyAnswers where no adsumd
    answers, BrokerUnavailable and BrokerRefused.
    """

    def __init__(self, broker: Broker, timeout: float = 10.0) -> None:
        self._broker, self._timeout = broker, timeout

    async def versions(self, asked: VersionsAsked) -> AsyncIterator[Version]:
        """Every version that held between two moments: `async for version in history.versions(…)`."""
        async for page in self.pages(asked):
            for version in page.items:
                yield version

    async def events(self, asked: EventsAsked) -> AsyncIterator[Logged]:
        """Every event between two moments: `async for event in history.events(…)`."""
        async for page in self.pages(asked):
            for logged in page.items:
                yield logged

    async def world(self, moment: Moment = _NOW, namespace: str = "", service: str = "") -> Page[Version]:
        """Everybody who was there at a moment, whole, as one page. Its `until` is the revision of the moment."""
        pages = [
            page
            async for page in self.pages(WorldAsked(namespace=namespace, service=service, at=moment, limit=MOST_ROWS))
        ]
        items = tuple(version for page in pages for version in page.items)
        return msgspec.structs.replace(pages[0], items=items, next=0)

    async def status(self, namespace: str = "") -> Status:
        """What one adsumd knows of itself. `namespace`: the one that this user may ask about, if not all."""
        return await self._ask(subjects.ask("status", namespace), b"", _status, begun=False)

    @overload
    def pages(self, asked: VersionsAsked | WorldAsked) -> AsyncIterator[Page[Version]]: ...

    @overload
    def pages(self, asked: EventsAsked) -> AsyncIterator[Page[Logged]]: ...

    async def pages(self, asked: Question) -> AsyncIterator[Page[Any]]:
        """The pages of an answer, each with the revisions it is for. `limit` is that of one page."""
        check_question(asked)
        endpoint, decoder = _FACES[type(asked)]
        subject = subjects.ask(endpoint, asked.namespace)
        epoch = None
        while True:
            page = await self._ask(subject, msgspec.json.encode(asked), decoder, begun=epoch is not None)
            if epoch not in (None, page.epoch):
                raise QuestionRefused(f"the log became another one (epoch {page.epoch}) while it was asked; ask again")
            epoch = page.epoch
            yield page
            if page.next == 0:
                return
            if page.next <= asked.after:
                raise Undecodable(f"the answer to {subject} does not go on: after {asked.after} comes {page.next}")
            asked = continued(asked, page)

    async def _ask(self, subject: str, data: bytes, decoder: msgspec.json.Decoder[T], *, begun: bool) -> T:
        """One answer, asked for again while there is time.

        Whoever answered once is asked again also where nobody answers, or one that has not folded so far: a daemon
        that restarts or lags takes nothing away from an answer that has begun.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return await self._try(subject, data, decoder, min(ONE_TRY, deadline - time.monotonic()))
            except (BrokerUnavailable, NotYet) as error:
                final = isinstance(error, NobodyAnswers | NotYet) and not begun
                if final or time.monotonic() + TRY_AGAIN >= deadline:
                    raise
            await asyncio.sleep(TRY_AGAIN)

    async def _try(self, subject: str, data: bytes, decoder: msgspec.json.Decoder[T], timeout: float) -> T:
        try:
            answer = await self._broker.request(subject, data, timeout)
        except NobodyAnswers:
            raise NobodyAnswers(f"no adsumd answers questions about the past ({subject}): {_REMEDY}") from None
        refused = error_of(answer.headers)
        if refused is not None:
            raise refused
        try:
            return decoder.decode(answer.data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Undecodable(f"the answer to {subject} cannot be read: {error}") from None
