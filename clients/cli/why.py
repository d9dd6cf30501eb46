"""`adsum why`: the story of one instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import click
import msgspec

from adsum.clients.history import History
from adsum.events.names import Key, check_label
from adsum.events.questions import MOST_ROWS, EventsAsked, Logged, Moment, Page, Version, VersionsAsked

from .moments import local
from .near import near, near_ids
from .options import Where, broker_options, json_option, pass_where
from .output import SHORTENED, Cell, Column, Lines, iso, note, show_json, show_line
from .past import asking, known
from .session import Failed, run
from .story import Now, Told, now, tell

__all__ = ["told_fields", "why"]

COLUMNS = (
    Column("TIME", shorten=lambda time: time[:10] if time == "now" else f"{time[5:10]} {time[11:19]}"),
    Column("REVISION", spare=True),
    Column("WHAT HAPPENED"),
)
ROOM = 50
"""The least width in which sentences can be read."""
_STYLES = {
    "registered": "green",
    "resumed": "green",
    "lapsed": "yellow",
    "expired": "red",
    "deregistered": "cyan",
}


class _Asked(NamedTuple):
    events: list[Logged]
    versions: list[Version]
    page: Page[Logged]


@click.command(short_help="The story of one instance: who said what of it, on what evidence.")
@click.argument("service")
@click.argument("id")
@json_option
@broker_options
@pass_where
def why(where: Where, service: str, id: str, as_json: bool) -> None:
    """Tell the story of the instance ID of SERVICE in sentences, all its lives, the last one last: when and by whom it
    came, what it changed, each silence with its evidence, how it ended; then what it is now and, if it must not be
    called, why.

    Times are those of this machine's zone. With --json one document: revision (up to which it is told), lives,
    story (the same facts, an object an event) and now. An instance that nobody ever spoke of ends with 1.

    \b
    Examples:
      adsum why orders 0198c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10
      adsum why orders web-1 --json | jq '.story[] | select(.evidence)'
    """
    check_label("service", service)
    if SHORTENED not in id:  # as tables shorten it: no id, but one can be suggested
        check_label("instance id", id)
    asked = run(_look(where, Key(where.namespace, service, id)))
    story = tell(asked.events, asked.versions)
    ending = now(asked.versions, story) if asked.versions else None
    if as_json:
        show_json(_fields(where, service, id, asked, story, ending))
    else:
        _show(Key(where.namespace, service, id), asked, story, ending)


async def _look(where: Where, key: Key) -> _Asked:
    async with asking(where) as history:
        events: list[Logged] = []
        page: Page[Logged] | None = None
        if SHORTENED not in key.id:
            async for page in history.pages(EventsAsked(**key._asdict(), limit=MOST_ROWS)):
                events += page.items
        versions: list[Version] = []
        if page is not None:
            asked = VersionsAsked(**key._asdict(), until=Moment(revision=page.until), limit=MOST_ROWS)
            versions = [version async for version in history.versions(asked)] if page.until else []
        if page is None or not (events or versions):
            raise Failed(await _unknown(history, key))
        return _Asked(events, versions, page)


async def _unknown(history: History, key: Key) -> str:
    """That nobody ever spoke of it, and who was perhaps meant."""
    ids, services = set(), set()
    async for service, id in known(history, key.namespace, Moment()):
        services.add(service)
        if service == key.service:
            ids.add(id)
    if ids:
        return f"{key.service} never had an instance {key.id} in namespace {key.namespace}{near_ids(key.id, ids)}"
    return f"there never was a service {key.service} in namespace {key.namespace}{near(key.service, services)}"


def told_fields(told: Told) -> dict[str, Any]:
    """The fields of JSON of one event."""
    fields: dict[str, Any] = msgspec.to_builtins(told)
    return fields | {"time": iso(told.time)}


def _fields(
    where: Where, service: str, id: str, asked: _Asked, story: Iterable[Told], ending: Now | None
) -> dict[str, Any]:
    page = asked.page
    return {
        "namespace": where.namespace,
        "service": service,
        "id": id,
        "epoch": page.epoch,
        "revision": page.until,
        "complete_from": page.complete_from,
        "lives": max((told.life for told in story), default=0),
        "story": [told_fields(told) for told in story],
        "now": msgspec.to_builtins(ending) | {"since": iso(ending.since)} if ending is not None else None,
    }


def _show(of: Key, asked: _Asked, story: list[Told], ending: Now | None) -> None:
    lives = max((told.life for told in story), default=0)
    show_line(f"{of}: {lives} {'life' if lives == 1 else 'lives'}, told up to @{asked.page.until}")
    Lines(COLUMNS, ROOM).show(_rows(asked, story, ending))
    if asked.page.complete_from > 1:
        note(f"what was said before revision {asked.page.complete_from} was removed from the catalog")


def _rows(asked: _Asked, story: Iterable[Told], ending: Now | None) -> Iterator[list[Cell]]:
    for told in story:
        style = _STYLES.get(told.type, "") if told.effect else ""
        yield [Cell(local(told.time)), Cell(f"@{told.revision}"), Cell(told.text, style)]
    if ending is not None:
        style = "green" if ending.routable else "yellow" if ending.present else "red"
        text = f"{ending.text[:-1]} (since {local(ending.since)})."
        yield [Cell("now"), Cell(f"@{asked.page.until}"), Cell(text, style)]
