"""Reports as a process sends them: about what it may, once in a while, and never to the harm of the call."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from adsum.clients.reporting import REPORT_EVERY, Reporting
from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_report
from adsum.events.errors import BrokerUnavailable, InvalidValue
from adsum.events.signals import Report
from tests.unit.samples import PRESENT, TERM


class Wire:
    """What the connection is asked to send."""

    name, connected, breaks = "caller-1", True, False

    def __init__(self) -> None:
        self.sent: list[tuple[str, Report]] = []

    async def publish(self, subject: str, data: bytes) -> None:
        """Take it, or fail."""
        if self.breaks:
            raise BrokerUnavailable("gone")
        self.sent.append((subject, decode_report(data)))


class Reporter:
    """Reports, with a clock and a wire of the test's own."""

    def __init__(self) -> None:
        self.wire, self.now = Wire(), 0.0
        self.reporting = Reporting(cast(Broker, self.wire), lambda: self.now)

    async def __call__(self, endpoint: str = "", reason: str = "refused", ago: float = 0.0, **other: str) -> bool:
        return await self.reporting.report(msgspec.structs.replace(PRESENT, **other), endpoint, reason, ago)


@pytest.fixture
def report() -> Reporter:
    return Reporter()


async def test_it_says_who_whom_what_and_when(report: Reporter) -> None:
    assert await report("admin", "timed out", 0.5)
    said = Report(by="caller-1", term=TERM, endpoint="admin", reason="timed out", ago=0.5)
    assert report.wire.sent == [(subjects.report(PRESENT.key), said)]


async def test_one_endpoint_of_one_life_is_reported_once_in_a_while(report: Reporter) -> None:
    assert [await report() for _ in range(3)] == [True, False, False]
    assert [await report("admin"), await report(term="another"), await report(id="orders-2")] == [True] * 3
    report.now += REPORT_EVERY
    assert await report("main")
    assert len(report.wire.sent) == 5


async def test_what_is_kept_in_mind_is_bounded(report: Reporter) -> None:
    for number in range(3_000):
        await report(id=f"o-{number}")
    assert len(report.reporting._sent) == len(report.wire.sent) == 1024
    report.now += REPORT_EVERY
    assert await report(id="o-2999")
    assert len(report.reporting._sent) == 1


async def test_a_broker_that_is_away_costs_the_call_nothing(report: Reporter) -> None:
    report.wire.breaks = True
    assert not await report()
    report.wire.connected = False
    report.now += REPORT_EVERY
    assert not await report()
    report.wire.connected, report.wire.breaks = True, False
    assert await report()


async def test_an_endpoint_that_is_not_there_is_refused(report: Reporter) -> None:
    with pytest.raises(InvalidValue, match="none of this name"):
        await report("other")


async def test_whatever_an_exception_says_can_be_sent(report: Reporter) -> None:
    assert await report(reason="\udcff" + "x" * 10_000, ago=-1.0)
    [(_, said)] = report.wire.sent
    assert (said.reason[:2], len(said.reason), said.ago) == ("?x", 300, 0.0)
