"""A service on the bus after the convention of NATS (ADR-32): any NATS tool finds it, its schemas and its figures.

The messages are those of nats-py's `nats.micro`. Its `Service` is not used, for four things: it answers one question
of a kind at a time, so that a slow one holds up all others; its end waits for a server that may stand still, and raises
where the connection is gone; a subscription that the server refuses goes unnoticed; and it takes its time from a
function that warns from Python 3.12 on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from nats.aio.msg import Msg
from nats.micro.service import (
    EndpointInfo,
    EndpointStats,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    ServiceVerb,
    control_subject,
)

from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.errors import AdsumError, BrokerRefused, BrokerUnavailable, QuestionRefused
from adsum.events.ids import new_id
from adsum.events.outage import Outage
from adsum.events.refusals import headers_of

from .listening import listen

__all__ = ["Endpoint", "Service"]

AT_ONCE = 2
"""Questions that are answered at the same time, so that the fold finds the database free; more wait."""
MOST_WAITING = 256
"""Questions that may wait; more are refused at once."""
LAST_ANSWERS = 1.0
"""Seconds that answers under way are given at the end."""

log = logging.getLogger("adsum.service")


class Endpoint(NamedTuple):
    """One kind of question: `answer` makes of a request's subject and data those of the answer.

    What it raises of AdsumError is told to whoever asked.
    """

    name: str
    subject: str
    answer: Callable[[str, bytes], Awaitable[bytes]]
    metadata: Mapping[str, str]


class Service:
    """Answers for as long as `run` goes on. Of the services of one name on a broker, one answers each question.

    `tried` is set once it has tried to listen, whatever came of it; `outage` tells while it cannot.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        version: str,
        description: str,
        metadata: Mapping[str, str],
        endpoints: Sequence[Endpoint],
    ) -> None:
        self._broker, self._name, self._endpoints = broker, name, endpoints
        self._identity: dict[str, Any] = {"id": new_id(), "name": name, "version": version, "metadata": dict(metadata)}
        self._description = description
        self._started = datetime.now(UTC)
        self._stats = {each.name: EndpointStats(each.name, each.subject, name, 0, 0, 0, 0) for each in endpoints}
        self._free = asyncio.Semaphore(AT_ONCE)
        self._answers: set[asyncio.Task[None]] = set()
        self.tried = asyncio.Event()
        remedy = "let this user subscribe to the subjects of questions (docs/operations.md); all else goes on"
        self.outage = Outage(log, f"listening as the service {name}", remedy)

    async def run(self) -> None:
        """Listen and answer until cancelled; answers that are under way then are given a moment."""
        delays = backoff(most=30.0)
        while True:
            async with AsyncExitStack() as listening:
                listening.push_async_callback(self._finish)
                try:
                    await self._listen(listening)
                except (BrokerUnavailable, BrokerRefused) as error:
                    self.outage.goes_on(error)
                else:
                    self.outage.over()
                    self.tried.set()
                    await asyncio.Event().wait()  # the connection renews the subscriptions by itself
            self.tried.set()
            await asyncio.sleep(next(delays))

    async def _listen(self, listening: AsyncExitStack) -> None:
        """Subscribe to everything for as long as the block lasts. Raises BrokerUnavailable, BrokerRefused."""
        told = {ServiceVerb.PING: self._ping, ServiceVerb.INFO: self._info, ServiceVerb.STATS: self._figures}
        for verb, tell in told.items():
            for names in ((), (self._name,), (self._name, self._identity["id"])):
                await listen(self._broker, listening, control_subject(verb, *names), partial(self._tell, tell))
        for endpoint in self._endpoints:
            await listen(self._broker, listening, endpoint.subject, partial(self._asked, endpoint), queue=self._name)

    async def _finish(self) -> None:
        """Wait for the answers under way, then end them."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=LAST_ANSWERS)
        for answer in self._answers:
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)

    # ---- answering

    async def _asked(self, endpoint: Endpoint, msg: Msg) -> None:
        """Begin to answer; the next question need not wait for that."""
        if len(self._answers) >= MOST_WAITING:
            await self._respond(msg, b"", headers_of(BrokerUnavailable("too many questions at once: ask again")))
            return
        task = asyncio.create_task(self._answer(endpoint, msg), name=f"answer {endpoint.name}")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _answer(self, endpoint: Endpoint, msg: Msg) -> None:
        async with self._free:
            began = time.perf_counter_ns()
            data, failure = await self._made(endpoint, msg)
            await self._respond(msg, data, headers_of(failure) if failure else None)
            self._count(self._stats[endpoint.name], time.perf_counter_ns() - began, failure)

    async def _made(self, endpoint: Endpoint, msg: Msg) -> tuple[bytes, AdsumError | None]:
        """The answer, or why there is none."""
        try:
            data = await endpoint.answer(msg.subject, msg.data)
        except AdsumError as error:
            return b"", error
        except Exception:  # one question that nobody thought of must not end a daemon
            log.exception("no answer to %s: %r", msg.subject, msg.data[:500])
            return b"", BrokerUnavailable("the question met a fault of adsumd; its log tells")
        if len(data) > self._broker.max_payload:
            told = f"the answer has {len(data)} bytes, the broker takes {self._broker.max_payload}"
            return b"", QuestionRefused(told)
        return data, None

    def _count(self, stats: EndpointStats, taken: int, failure: AdsumError | None) -> None:
        stats.num_requests += 1
        stats.processing_time += taken
        stats.average_processing_time = stats.processing_time // stats.num_requests
        if failure is not None:
            stats.num_errors += 1
            stats.last_error = str(failure)

    async def _respond(self, msg: Msg, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer; whoever did not say where to gets none."""
        if not msg.reply:
            return
        try:
            await self._broker.publish(msg.reply, data, headers=headers)
        except BrokerUnavailable as error:
            log.debug("an answer to %s is lost: %s", msg.subject, error)

    # ---- what NATS tools ask of every service

    async def _tell(self, tell: Callable[[], dict[str, Any]], msg: Msg) -> None:
        await self._respond(msg, json.dumps(tell()).encode())

    def _ping(self) -> dict[str, Any]:
        return ServicePing(**self._identity).to_dict()

    def _info(self) -> dict[str, Any]:
        endpoints = [EndpointInfo(each.name, each.subject, self._name, dict(each.metadata)) for each in self._endpoints]
        return ServiceInfo(**self._identity, description=self._description, endpoints=endpoints).to_dict()

    def _figures(self) -> dict[str, Any]:
        stats = ServiceStats(**self._identity, started=self._started, endpoints=list(self._stats.values()))
        return stats.to_dict()
