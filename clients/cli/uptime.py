"""`adsum uptime`: how much of the time instances and services were there and could be called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

import click

from adsum.clients.history import History
from adsum.events.names import check_label
from adsum.events.questions import MOST_ROWS, Moment, Page, Version, VersionsAsked

from .moments import MOMENT, TIMES, Dated, check_order
from .near import near
from .options import Where, broker_options, json_option, pass_where
from .output import EMPTY, Cell, Column, Lines, brief, note, show_json, show_line
from .past import Instant, asking, instant, known, percent, span
from .session import Failed, run
from .spans import Uptime, Uptimes, Window

__all__ = ["uptime", "uptime_fields"]

COLUMNS = (
    Column("SERVICE"),
    Column("ID", shorten=brief),
    *(Column(title) for title in ("ROUTABLE", "PRESENT", "LEFT", "LONGEST GAP", "BETWEEN", "COUNTED")),
)
ANY = "(any)"
_BEGINNING = Moment(revision=0)
_GOOD = 0.999


@click.command(
    cls=Dated, short_help="How much of the time instances and services were there and could be called.", epilog=TIMES
)
@click.argument("service", required=False)
@click.option(
    "--since", metavar="TIME", type=MOMENT, default=_BEGINNING, help="From when on.  [default: all that is kept]"
)
@click.option("--until", metavar="TIME", type=MOMENT, default=Moment(), help="Up to when.  [default: now]")
@click.option("--all", "everyone", is_flag=True, help="Also those that had left before and were not there at all.")
@json_option
@broker_options
@pass_where
def uptime(where: Where, service: str | None, since: Moment, until: Moment, everyone: bool, as_json: bool) -> None:
    """What share of the time each instance of SERVICE, or of all services, was there and could be called.

    \b
    ROUTABLE     share of COUNTED in which it could be called
    PRESENT      share of COUNTED in which it was there, in whatever state
    LEFT         how often it expired or was deregistered (not: superseded)
    LONGEST GAP  the longest time in which it could not be called
    BETWEEN      mean time between departures: time present / LEFT
    COUNTED      from --since, or its first registration if later, to --until
    (any)        the service as a whole: at least one of its instances

    A gap that lasts counts up to --until. A service left when the last of its instances did.

    With --json one document: since, until, services, each with its instances; all times in seconds, shares from 0 to 1.

    \b
    Examples:
      adsum uptime orders --since -24h
      adsum uptime --since 2026-01-01 --until 2026-02-01
      adsum uptime --json | jq -r '.services[] | "\\(.service) \\(.share_routable)"'
    """
    if service is not None:
        check_label("service", service)
    check_order(since, until, "until", "--since")
    found = run(_look(where, service or "", since, until))
    shown = [one for one in found.uptimes if everyone or not (one.id and _away(one))]
    hidden = len(found.uptimes) - len(shown)
    if as_json:
        show_json(_fields(found, shown))
    elif shown:
        show_line(f"from {found.since} to {found.until}")
        Lines(COLUMNS).show([_cells(one) for one in shown])
    if not shown:
        of = f" of {service}" if service else ""
        note(f"nobody{of} was there in namespace {where.namespace} from {found.since} to {found.until}{found.hint}")
    elif hidden:
        note(f"{hidden} more had left before; --all shows also these")


class _Found(NamedTuple):
    since: Instant
    until: Instant
    uptimes: list[Uptime]
    hint: str


async def _look(where: Where, service: str, since: Moment, until: Moment) -> _Found:
    async with asking(where) as history:
        asked = VersionsAsked(namespace=where.namespace, service=service, since=since, until=until, limit=MOST_ROWS)
        uptimes: Uptimes | None = None
        async for page in history.pages(asked):
            if uptimes is None:
                begin = await instant(history, where.namespace, since, page.since)
                end = await instant(history, where.namespace, until, page.until)
                whole = since.revision == 0
                uptimes = Uptimes(_window(whole, begin, end))
                if not whole:
                    await _tell_known(uptimes, history, where.namespace, service, page)
            for version in page.items:
                uptimes.add(version)
        assert uptimes is not None  # an answer has one page at least
        found = uptimes.close()
        hint = await _hint(history, where.namespace, service, end) if service and not found else ""
        return _Found(begin, end, found, hint)


def _window(whole: bool, begin: Instant, end: Instant) -> Window:
    """The times of what is looked at; `whole`: all that is kept."""
    for one in ([] if whole else [begin]) + [end]:
        if one.time is None and one.revision:
            raise Failed(f"when revision {one.revision} was is not known here: give a time instead")
    return Window(None if whole else begin.time, end.time or 0.0)


async def _tell_known(uptimes: Uptimes, history: History, namespace: str, service: str, page: Page[Version]) -> None:
    """Whoever had registered up to the beginning, as far as that is kept."""
    if page.since == 0:
        return
    async for name, id in known(history, namespace, Moment(revision=page.since), service):
        uptimes.knew(name, id)
    if page.complete_from > 1:
        kept = await history.world(Moment(revision=page.complete_from), namespace, service)
        for version in kept.items:
            uptimes.knew(version.service, version.id)


async def _hint(history: History, namespace: str, service: str, end: Instant) -> str:
    if end.revision == 0:
        return ""
    services = {name async for name, _ in known(history, namespace, Moment(revision=end.revision))}
    return near(service, services)


def _away(one: Uptime) -> bool:
    """Whether it was not there at all."""
    return one.counted > 0 and one.present == 0 and one.left == 0


def uptime_fields(one: Uptime) -> dict[str, Any]:
    """The fields of JSON."""
    return {
        "counted": one.counted,
        "routable": one.routable,
        "present": one.present,
        "share_routable": one.share_routable,
        "share_present": one.share_present,
        "left": one.left,
        "longest_gap": one.longest_gap,
        "between": one.between,
    }


def _fields(found: _Found, shown: Iterable[Uptime]) -> dict[str, Any]:
    services = []
    for name, members in groupby(shown, key=lambda one: one.service):
        total, *instances = members
        told = [{"id": one.id, **uptime_fields(one)} for one in instances]
        services.append({"service": name, **uptime_fields(total), "instances": told})
    return {"since": found.since.fields, "until": found.until.fields, "services": services}


def _cells(one: Uptime) -> list[Cell]:
    return [Cell(one.service), Cell(one.id or ANY, "" if one.id else "bold"), *_figures(one)]


def _figures(one: Uptime) -> Iterator[Cell]:
    share, present = one.share_routable, one.share_present
    style = "green" if share is not None and share >= _GOOD else "yellow" if share else "red"
    yield Cell(percent(share), style) if share is not None else Cell(EMPTY)
    yield Cell(percent(present)) if present is not None else Cell(EMPTY)
    yield Cell(str(one.left))
    yield Cell(span(one.longest_gap) if one.longest_gap else EMPTY)
    yield Cell(span(one.between) if one.between is not None else EMPTY)
    yield Cell(span(one.counted))
