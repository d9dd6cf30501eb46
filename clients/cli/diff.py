"""`adsum diff`: what is not the same at two moments, and how it came about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import click

from adsum.clients.history import History
from adsum.events.codec import decode_event
from adsum.events.lifecycle import Event
from adsum.events.names import Key, check_label
from adsum.events.questions import MOST_ROWS, EventsAsked, Moment, Version, VersionsAsked

from .comparing import changes, differences
from .log import detail
from .moments import MOMENT, TIMES, Dated, check_order, local
from .options import Where, broker_options, json_option, pass_where
from .output import Cell, Column, Lines, brief, iso, note, show_json, show_line
from .past import Instant, asking, instance_of, instant, who
from .session import run
from .shown import instance_fields, summary

__all__ = ["Comparison", "Difference", "diff", "difference_fields", "told"]

COLUMNS = (
    Column("TIME", shorten=lambda time: f"{time[5:10]} {time[11:19]}", spare=True),
    Column("CHANGE", least=7),
    Column("SERVICE"),
    Column("ID", shorten=brief),
    Column("REVISION", spare=True),
    Column("DETAIL"),
)
_STYLES = {"joined": "green", "changed": "yellow", "left": "red"}
DECIDING = ("registered", "expired", "deregistered")
"""The types of the events by which an instance comes, goes or is superseded."""


class Difference(NamedTuple):
    """What became of one instance between two moments.

    `kind` is "joined", "left" or "changed"; `revision` and `time` are those of the event that brought it about, for a
    change the last one. `ended`: how the life of `before` ended ("expired", "deregistered", "superseded"; "": it
    lasts), and at which revision: there is the event that says by whom and why.
    """

    kind: str
    before: Version | None
    after: Version | None
    revision: int
    time: float
    ended: str = ""
    ended_revision: int = 0

    @property
    def key(self) -> Key:
        """Whose it is."""
        one = self.after or self.before
        assert one is not None
        return one.key


class _Course:
    """Of one instance: the version that held at the first moment, and what matters of those that came after."""

    def __init__(self, first: Version, since: int) -> None:
        self.before = first if first.began_revision <= since else None
        self.of_before = self.begin = self.last = first

    def add(self, version: Version) -> None:
        if version.term == self.of_before.term:
            self.of_before = version
        if version.term != self.last.term:
            self.begin = version
        self.last = version


class Comparison:
    """Two worlds, from the versions that held between them, added in order of `began_revision`."""

    def __init__(self, since: int) -> None:
        self._since = since
        self._courses: dict[Key, _Course] = {}

    def add(self, version: Version) -> None:
        """One more version."""
        course = self._courses.get(version.key)
        if course is None:
            self._courses[version.key] = _Course(version, self._since)
        else:
            course.add(version)

    def differences(self) -> list[Difference]:
        """What is not the same, by service and id."""
        found = (_difference(course) for _, course in sorted(self._courses.items()))
        return [one for one in found if one is not None]

    @property
    def passing(self) -> int:
        """How many were there neither at the first moment nor at the second, but between them."""
        return sum(one.before is None and one.last.ended_revision is not None for one in self._courses.values())


def _difference(course: _Course) -> Difference | None:
    before, last = course.before, course.last
    if last.ended_revision is not None:
        assert last.ended_at is not None
        if before is None:
            return None
        return Difference("left", before, None, last.ended_revision, last.ended_at, *_ending(last))
    if before is None:
        return Difference("joined", None, last, course.begin.began_revision, course.begin.began_at)
    if not changes(instance_of(before, ""), instance_of(last, "")):
        return None
    ended = _ending(course.of_before) if last.term != before.term else ("", 0)
    return Difference("changed", before, last, last.began_revision, last.began_at, *ended)


def _ending(last: Version) -> tuple[str, int]:
    """How a life ended whose last version this is, and at which revision."""
    return "superseded" if last.ended_by == "registered" else last.ended_by or "", last.ended_revision or 0


def told(one: Difference, events: Mapping[int, Event]) -> str:
    """What there is to say of a difference, on one line. `events` are those that ended or began a life."""
    if one.after is None:
        return _by(one.ended, events.get(one.ended_revision))
    if one.before is None:
        return summary(one.after.description)
    ended = f" (the one before: {_by(one.ended, events.get(one.ended_revision))})" if one.ended else ""
    parts = list(differences(instance_of(one.before, ""), instance_of(one.after, "")))
    return "; ".join([f"{parts[0]}{ended}", *parts[1:]])


def _by(ended: str, event: Event | None) -> str:
    if event is None:
        return ended
    if ended == "superseded":  # what the successor says of itself is told as changes
        return f"superseded, {who(event.by)} registered it anew"
    why = detail(event)
    return f"{ended} by {who(event.by)}" + (f": {why}" if why else "")


def difference_fields(one: Difference, events: Mapping[int, Event], epoch: str) -> dict[str, Any]:
    """The fields of JSON. `reason`: how the life of `before` ended, "" if it lasts; `author`: who said so."""
    before, after = (instance_of(version, epoch) if version else None for version in (one.before, one.after))
    event = events.get(one.ended_revision if one.ended else one.revision)
    return {
        "kind": one.kind,
        **one.key._asdict(),
        "revision": one.revision,
        "time": iso(one.time),
        "reason": one.ended,
        "author": event.by if event is not None else None,
        "detail": told(one, events),
        "changes": changes(before, after) if before and after else {},
        "before": instance_fields(before) if before else None,
        "after": instance_fields(after) if after else None,
    }


@click.command(cls=Dated, short_help="What is not the same at two moments, and who brought it about.", epilog=TIMES)
@click.argument("first", metavar="TIME1", type=MOMENT)
@click.argument("second", metavar="TIME2", type=MOMENT)
@click.argument("service", required=False)
@click.option("--exit-code", is_flag=True, help="End with 1 if anything differs.")
@json_option
@broker_options
@pass_where
def diff(where: Where, first: Moment, second: Moment, service: str | None, exit_code: bool, as_json: bool) -> int:
    """Compare who was there at TIME1 and at TIME2: a line for each instance of SERVICE, or of all services, that
    joined, left or changed.

    One that left: how (expired, deregistered) and by whom. One that changed: each field before -> after; "a new life"
    where another process has its id, and how the life before ended. What was undone before TIME2 is no difference;
    `adsum log --since TIME1 --until TIME2` tells all. With --json one document: since, until, epoch, differences.
    Ends with 0 whether anything differs or not, unless --exit-code is given.

    \b
    Examples:
      adsum diff -2h now
      adsum diff "yesterday 14:00" "yesterday 15:00" orders
      adsum diff @1200 @1300 --json | jq -r '.differences[] | "\\(.kind) \\(.id)"'
    """
    if service is not None:
        check_label("service", service)
    check_order(first, second, "TIME2", "TIME1")
    found = run(_look(where, first, second, service or ""))
    if as_json:
        show_json(found.fields())
    else:
        _show(found, service, where.namespace)
    return 1 if exit_code and found.differences else 0


class _Found(NamedTuple):
    since: Instant
    until: Instant
    epoch: str
    differences: list[Difference]
    events: dict[int, Event]
    passing: int

    def fields(self) -> dict[str, Any]:
        return {
            "since": self.since.fields,
            "until": self.until.fields,
            "epoch": self.epoch,
            "differences": [difference_fields(one, self.events, self.epoch) for one in self.differences],
        }


async def _look(where: Where, first: Moment, second: Moment, service: str) -> _Found:
    async with asking(where) as history:
        comparison, bounds = None, (0, 0, "")
        asked = VersionsAsked(namespace=where.namespace, service=service, since=first, until=second, limit=MOST_ROWS)
        async for page in history.pages(asked):
            if comparison is None:
                comparison, bounds = Comparison(page.since), (page.since, page.until, page.epoch)
            for version in page.items:
                comparison.add(version)
        assert comparison is not None  # an answer has one page at least
        since, until, epoch = bounds
        found = comparison.differences()
        return _Found(
            await instant(history, where.namespace, first, since),
            await instant(history, where.namespace, second, until),
            epoch,
            found,
            await _deciding(history, where.namespace, service, since, until, found),
            comparison.passing,
        )


async def _deciding(
    history: History, namespace: str, service: str, since: int, until: int, found: Iterable[Difference]
) -> dict[int, Event]:
    """The events that say by whom."""
    wanted = {one.ended_revision if one.ended else one.revision for one in found}
    if not wanted:
        return {}
    asked = EventsAsked(
        namespace=namespace,
        service=service,
        types=DECIDING,
        limit=MOST_ROWS,
        since=Moment(revision=since),
        until=Moment(revision=until),
    )
    return {
        logged.revision: decode_event(bytes(logged.event))
        async for logged in history.events(asked)
        if logged.revision in wanted
    }


def _show(found: _Found, service: str | None, namespace: str) -> None:
    counts = Counter(one.kind for one in found.differences)
    if counts:
        told_counts = ", ".join(f"{counts[kind]} {kind}" for kind in ("joined", "left", "changed") if counts[kind])
        show_line(f"from {found.since} to {found.until}: {told_counts}")
        Lines(COLUMNS).show(_rows(found))
    else:
        of = f" of {service}" if service else ""
        note(f"nothing{of} in namespace {namespace} differs from {found.since} to {found.until}")
    if found.passing:
        bounds = f"--since @{found.since.revision} --until @{found.until.revision}"
        command = f"adsum log {service} {bounds}" if service else f"adsum log {bounds}"
        note(f"{found.passing} more came and went between: {command} tells of them")


def _rows(found: _Found) -> Iterator[list[Cell]]:
    for one in found.differences:
        yield [
            Cell(local(one.time)),
            Cell(one.kind, _STYLES[one.kind]),
            Cell(one.key.service),
            Cell(one.key.id),
            Cell(f"@{one.revision}"),
            Cell(told(one, found.events)),
        ]
