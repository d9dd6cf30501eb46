"""What is said of trouble that lasts: once at first, louder later, and when it is over."""

from __future__ import annotations

import logging

import pytest

from adsum.events.outage import Outage


class Trouble:
    """An outage with a clock of the test's own."""

    def __init__(self, caplog: pytest.LogCaptureFixture, alarm_after: float) -> None:
        caplog.set_level(logging.INFO)
        self._records = caplog.records
        self.now = 100.0
        self.outage = Outage(logging.getLogger("test"), "it", "do this", alarm_after, lambda: self.now)

    def fails(self, *times: float, already: float = 0.0) -> list[str]:
        """It fails so many seconds after the beginning; the levels of all that was said until then."""
        for time in times:
            self.now = 100.0 + time
            self.outage.goes_on("no answer", already)
        return self.levels

    @property
    def levels(self) -> list[str]:
        """What was said so far."""
        return [record.levelname for record in self._records]


def test_a_warning_then_an_error_each_time_that_the_alarm_passes(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(caplog, 15.0)
    assert trouble.fails(0, 5, 14.9) == ["WARNING"]
    assert trouble.fails(15, 20, 29.9) == ["WARNING", "ERROR"]
    assert trouble.fails(30) == ["WARNING", "ERROR", "ERROR"]
    trouble.outage.over()
    trouble.outage.over()
    assert trouble.levels == ["WARNING", "ERROR", "ERROR", "INFO"]
    assert trouble.outage.lasted == 0.0


def test_the_alarm_may_come_sooner_or_later_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(caplog, 60.0)
    assert trouble.fails(0, 5) == ["WARNING"]
    trouble.outage.alarm_after = 1.0
    assert trouble.fails(5) == ["WARNING", "ERROR"]
    trouble.outage.alarm_after = 60.0
    assert trouble.fails(6, 60) == ["WARNING", "ERROR"]


def test_what_was_noticed_late_counts_from_when_it_began(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(caplog, 15.0)
    assert trouble.fails(0, already=12.0) == ["WARNING"]
    assert trouble.outage.lasted == 12.0
    assert trouble.fails(3, already=15.0) == ["WARNING", "ERROR"]
    assert trouble.outage.lasted == 15.0
