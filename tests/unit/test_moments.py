"""Moments as people write them: the table, the change of clocks, and that what is shown is read back."""

from __future__ import annotations

import math
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from adsum.clients.cli.moments import MOMENT, RULE, Dated, check_order, local, parse_moment
from adsum.events.errors import InvalidValue
from adsum.events.questions import Moment

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = [UTC, BERLIN, ZoneInfo("America/Sao_Paulo"), ZoneInfo("Asia/Kathmandu"), ZoneInfo("Australia/Lord_Howe")]
NOW = datetime(2026, 10, 26, 10, 0, tzinfo=BERLIN).timestamp()
"""The morning after the clocks were put back."""


def berlin(text: str, now: float = NOW) -> str:
    """The instant that is meant, in UTC."""
    found = parse_moment(text, now, BERLIN)
    assert found.time is not None
    return datetime.fromtimestamp(found.time, UTC).isoformat()


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-31T14:32", "2026-01-31T13:32:00+00:00"),
        ("2026-01-31 14:32", "2026-01-31T13:32:00+00:00"),
        ("2026-01-31t14:32:05", "2026-01-31T13:32:05+00:00"),
        ("2026-01-31T14:32:05.25", "2026-01-31T13:32:05.250000+00:00"),
        ("2026-01-31T14:32Z", "2026-01-31T14:32:00+00:00"),
        ("2026-01-31T14:32:05z", "2026-01-31T14:32:05+00:00"),
        ("2026-01-31T14:32-05:30", "2026-01-31T20:02:00+00:00"),
        ("2026-01-31 14:32 +01:00", "2026-01-31T13:32:00+00:00"),
        ("2026-07-31T14:32", "2026-07-31T12:32:00+00:00"),
        ("2026-01-31", "2026-01-30T23:00:00+00:00"),
        ("today", "2026-10-25T23:00:00+00:00"),
        ("Yesterday", "2026-10-24T22:00:00+00:00"),
        ("9:30", "2026-10-26T08:30:00+00:00"),
        ("today 09:30", "2026-10-26T08:30:00+00:00"),
        ("yesterday 14:32", "2026-10-25T13:32:00+00:00"),
        ("  yesterday   14:32 ", "2026-10-25T13:32:00+00:00"),
        ("yesterday 23:30Z", "2026-10-25T23:30:00+00:00"),
        ("-2h", "2026-10-26T07:00:00+00:00"),
        ("-90m", "2026-10-26T07:30:00+00:00"),
        ("-3d 4h", "2026-10-23T05:00:00+00:00"),
        ("-3d4h", "2026-10-23T05:00:00+00:00"),
        ("-250ms", "2026-10-26T08:59:59.750000+00:00"),
        ("10:00:04", "2026-10-26T09:00:04+00:00"),  # a broker's clock may be ahead a little
    ],
)
def test_a_time(text: str, instant: str) -> None:
    assert berlin(text) == instant


def test_now_and_revisions() -> None:
    assert parse_moment("now", NOW) == parse_moment(" Now ", NOW) == Moment()
    assert parse_moment("@1234", NOW) == Moment(revision=1234)
    assert parse_moment("@0", NOW) == Moment(revision=0)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "@", "@-1", "@1.5", f"@{1 << 63}", "-", "-5", "-2", "-0s", "-h", "--2h", "- ", "-2 parsecs",
        "tomorrow", "yesterday14:32", "last tuesday", "2026-1-31", "2026-02-30", "2026-13-01", "0000-01-01", "20260131",
        "24:00", "14:60", "14", "14:3", "14:32:60", "2026-01-31T", "2026-01-31T14:32+1", "2026-01-31T14:32+25:00",
        "2026-01-31T14:32:05.1234567", "2026-01-31Z", "1769866320", "\u0662\u0660\u0662\u0666-01-31", "now -2h", "\x00",
    ],
)  # fmt: skip
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_moment(text, NOW, BERLIN, "since")
    assert (caught.value.field, caught.value.value, caught.value.rule) == ("since", text, RULE)


@pytest.mark.parametrize(
    ("text", "suggestion"), [("2h", "-2h"), ("1h30m", "-1h30m"), ("1234", "@1234"), ("soon", None), ("-5", None)]
)
def test_what_was_perhaps_meant(text: str, suggestion: str | None) -> None:
    with pytest.raises(InvalidValue) as caught:
        parse_moment(text, NOW, BERLIN)
    assert caught.value.suggestion == suggestion


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("10:01", "yesterday 10:01"), ("2026-10-26T10:01", None), ("2026-10-27", None), ("9999-12-31T23:59Z", None),
        ("today 10:01", None),
    ],
)  # fmt: skip
def test_a_time_to_come(text: str, suggestion: str | None) -> None:
    with pytest.raises(InvalidValue, match=r"is in the future: it is 2026-10-26T10:00:00.000\+01:00 here") as caught:
        parse_moment(text, NOW, BERLIN)
    assert caught.value.suggestion == suggestion


# ---- the change of clocks


def test_a_time_that_was_twice_is_asked_for_with_its_zone() -> None:
    rule = r"was twice, .*: say 2026-10-25T02:30:00\+02:00 or 2026-10-25T02:30:00\+01:00"
    for text in ("yesterday 02:30", "2026-10-25T02:30"):
        with pytest.raises(InvalidValue, match=rule):
            parse_moment(text, NOW, BERLIN)
    assert berlin("2026-10-25T02:30:00+02:00") == "2026-10-25T00:30:00+00:00"
    assert berlin("2026-10-25T02:30:00+01:00") == "2026-10-25T01:30:00+00:00"
    assert berlin("yesterday 01:59") == "2026-10-24T23:59:00+00:00"
    assert berlin("yesterday 03:00") == "2026-10-25T02:00:00+00:00"


def test_a_time_that_was_not_is_told_with_one_that_was() -> None:
    with pytest.raises(InvalidValue, match="was not: the clocks were put forward over it") as caught:
        parse_moment("2026-03-29T02:30", NOW, BERLIN)
    assert caught.value.suggestion == "2026-03-29T03:30:00+02:00"
    assert berlin("2026-03-29T01:59") == "2026-03-29T00:59:00+00:00"
    assert berlin("2026-03-29T03:00") == "2026-03-29T01:00:00+00:00"


def test_a_day_begins_with_its_first_instant() -> None:
    """Also one that has no midnight, and one that has two."""
    assert local(parse_moment("2018-11-04", NOW, ZONES[2]).time or 0, ZONES[2]) == "2018-11-04T01:00:00.000-02:00"
    havana = ZoneInfo("America/Havana")
    assert local(parse_moment("2025-11-02", NOW, havana).time or 0, havana) == "2025-11-02T00:00:00.000-04:00"


@given(st.datetimes(datetime.fromisoformat("1971-01-01"), datetime.fromisoformat("2026-10-25")), st.sampled_from(ZONES))
def test_a_local_time_is_read_as_the_one_instant_that_shows_it_or_refused(naive: datetime, zone: tzinfo) -> None:
    """The machine's own idea of the same zone agrees: an instant is meant if and only if it alone shows this time."""
    stamps = {naive.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)}
    showing = {at for at in stamps if datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0) == naive}
    try:
        found = parse_moment(naive.isoformat(), NOW, zone)
    except InvalidValue:
        assert len(showing) != 1
    else:
        assert {found.time} == showing


@given(st.integers(0, int(NOW * 1_000_000)), st.sampled_from(ZONES), st.sampled_from(ZONES))
def test_an_event_is_in_what_its_time_means_wherever_that_is_read(micros: int, shown: tzinfo, read: tzinfo) -> None:
    """It is shown cut to the millisecond, and counts; what came a millisecond later does not."""
    found = parse_moment(local(micros / 1_000_000, shown), NOW, read).time
    assert found is not None
    assert micros <= round(found * 1_000_000) < micros + 1000


@given(st.text() | st.from_regex(r"[-@0-9:TZ+. ]{1,30}") | st.from_regex(r"-[0-9]+(d|h|m|s|ms)", fullmatch=True))
def test_reads_a_moment_that_is_not_to_come_or_refuses(text: str) -> None:
    try:
        found = parse_moment(text, NOW, BERLIN)
    except InvalidValue:
        return
    assert found.revision is None or found.time is None
    assert found.revision is None or 0 <= found.revision < 1 << 63
    assert found.time is None or (math.isfinite(found.time) and found.time <= NOW + 5)


# ---- on the command line


@pytest.mark.parametrize("arguments", [["-2h", "--since", "-5m"], ["--since", "-5m", "-2h"], ["--since=-5m", "-2h"]])
def test_a_dash_before_a_digit_is_no_option(arguments: list[str]) -> None:
    seen: list[Moment] = []

    @click.command(cls=Dated, context_settings={"help_option_names": ["-h", "--help"]})
    @click.argument("moment", type=MOMENT)
    @click.option("--since", type=MOMENT)
    def command(moment: Moment, since: Moment) -> None:
        seen.extend((moment, since))

    assert CliRunner().invoke(command, arguments, standalone_mode=False).exception is None
    moment, since = seen
    assert (since.time or 0) - (moment.time or 0) == pytest.approx(2 * 3600 - 300, abs=5)


def at(text: str) -> Moment:
    return parse_moment(text, NOW, BERLIN)


@pytest.mark.parametrize(
    ("first", "second", "backwards"),
    [
        ("-2h", "-1h", False), ("-1h", "-2h", True), ("-1h", "-1h", False), ("-1h", "now", False),
        ("now", "now", False), ("now", "-1h", True), ("@2", "@1", True), ("@1", "@1", False), ("@1", "now", False),
        ("@9", "-1h", False),
        ("now", "@1", False),
    ],
)  # fmt: skip
def test_what_is_backwards_is_refused_where_no_log_is_needed_to_know(first: str, second: str, backwards: bool) -> None:
    if not backwards:
        check_order(at(first), at(second), "TIME2", "TIME1")
        return
    with pytest.raises(InvalidValue, match=r"TIME2 .*: must not be before TIME1"):
        check_order(at(first), at(second), "TIME2", "TIME1")
