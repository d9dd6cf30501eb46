"""Answering on the bus what is asked about the past: the service `adsum`, run by every daemon, whether it leads or not.

Thin faces over `history`. A daemon with a catalog of its own answers from that, one on a shared catalog reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.errors import QuestionRefused
from adsum.events.outage import Outage
from adsum.events.questions import EventsAsked, Logged, Page, Status, Version, VersionsAsked, WorldAsked

from .catalog import Catalog
from .history import ROOM, History
from .service import Endpoint, Service

__all__ = ["Answering"]

Q = TypeVar("Q", VersionsAsked, WorldAsked, EventsAsked)

NAME = "adsum"
VERSION = "1.0.0"
"""Of the questions and answers, not of the program."""
DESCRIPTION = "adsum: who is there, who was there, and what was said"
_ENVELOPE = 1024
"""Bytes of a page beside its items."""
_encode = msgspec.json.Encoder().encode


class Answering:
    """The service of one daemon. `leads` tells whether the daemon does now; `daemon` names this run of it."""

    def __init__(self, broker: Broker, catalog: Catalog, daemon: str, leads: Callable[[], bool]) -> None:
        self._broker, self._catalog, self._daemon, self._leads = broker, catalog, daemon, leads
        self._history = History(catalog)
        metadata = {"catalog": catalog.name, "daemon": daemon}
        self._service = Service(broker, NAME, VERSION, DESCRIPTION, metadata, self._endpoints())

    @property
    def outage(self) -> Outage:
        """What fails while it cannot listen."""
        return self._service.outage

    async def run(self) -> None:
        """Answer until cancelled."""
        await self._service.run()

    async def tried(self) -> None:
        """Wait until it has tried to listen, whatever came of it."""
        await self._service.tried.wait()

    def _endpoints(self) -> list[Endpoint]:
        def endpoint(name: str, answer: Any, asked: Any, answered: Any) -> Endpoint:
            return Endpoint(name, subjects.asks(name), answer, _schemas(asked, answered))

        return [
            endpoint("instances", self._world, WorldAsked, Page[Version]),
            endpoint("world", self._world, WorldAsked, Page[Version]),
            endpoint("history", self._versions, VersionsAsked, Page[Version]),
            endpoint("events", self._events, EventsAsked, Page[Logged]),
            endpoint("status", self._status, None, Status),
        ]

    async def _world(self, subject: str, data: bytes) -> bytes:
        return _encode(await self._history.versions(_question(subject, data, WorldAsked), self._room()))

    async def _versions(self, subject: str, data: bytes) -> bytes:
        return _encode(await self._history.versions(_question(subject, data, VersionsAsked), self._room()))

    async def _events(self, subject: str, data: bytes) -> bytes:
        return _encode(await self._history.events(_question(subject, data, EventsAsked), self._room()))

    async def _status(self, subject: str, data: bytes) -> bytes:
        extent = await self._history.extent()
        status = Status(
            epoch=extent.epoch,
            revision=extent.revision,
            complete_from=extent.complete_from,
            head=extent.head.hex(),
            catalog=self._catalog.name,
            daemon=self._daemon,
            leads=self._leads(),
            rejected=await self._catalog.set_aside(),
        )
        return _encode(status)

    def _room(self) -> int:
        return min(ROOM, self._broker.max_payload - _ENVELOPE)


def _question(subject: str, data: bytes, kind: type[Q]) -> Q:
    """The question in a request; the namespace of the subject is the one it is about. Raises QuestionRefused."""
    try:
        asked = msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise QuestionRefused(f"the question cannot be read: {error}") from None
    namespace = subjects.namespace_of_ask(subject)
    if namespace and asked.namespace not in ("", namespace):
        told = f"asked at {subject} about the namespace {asked.namespace}: ask at {subjects.ask('…', asked.namespace)}"
        raise QuestionRefused(told)
    return msgspec.structs.replace(asked, namespace=namespace or asked.namespace)


def _schemas(asked: Any, answered: Any) -> dict[str, str]:
    """What is asked and answered as JSON Schemas."""
    kinds = {"request": asked, "response": answered}
    return {name: _encode(msgspec.json.schema(kind)).decode() for name, kind in kinds.items() if kind is not None}
