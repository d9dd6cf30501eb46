"""`adsum watch`: every change of who is there, as it happens."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from adsum.clients.cache import Change
from adsum.clients.directory import Directory
from adsum.clients.registry import connect
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.errors import BrokerRefused, BrokerUnavailable, Undecodable
from adsum.events.lifecycle import Event
from adsum.events.names import check_capability, check_label
from adsum.events.streams import EVENTS

from .comparing import differences
from .log import author_of, detail
from .moments import local
from .options import Where, broker_options, json_option, pass_where
from .output import Cell, Column, Lines, brief, iso, note, show_json_lines
from .session import heard, ready, run, while_read
from .shown import condition, instance_fields, summary

__all__ = ["change_fields", "watch"]

COLUMNS = (
    Column("TIME", shorten=lambda time: time[11:19], spare=True),
    Column("CHANGE", least=7),
    Column("SERVICE", least=12),
    Column("ID", least=36, shorten=brief),
    Column("STATE", least=8),
    Column("DETAIL", least=30),
)
_STYLES = {"joined": "green", "changed": "yellow", "left": "red"}


@click.command(short_help="Every change of who is there, as it happens.")
@click.argument("service", required=False)
@click.option("--capability", metavar="NAME", help="Only those that have this capability.")
@json_option
@broker_options
@pass_where
def watch(where: Where, service: str | None, capability: str | None, as_json: bool) -> None:
    """Print a line for each change of SERVICE, or of all services: joined, changed or left. It begins with those who
    are there, as joined, and goes on until Ctrl-C, through any outage; what happened meanwhile is told afterwards.

    With --json one line a change: kind, what names the instance, and its state before and after (null: not there).
    Of one that left: the type of its last event as "reason", and what that event says as "detail". Where nobody is
    there a note says so, which is no error.

    \b
    Examples:
      adsum watch
      adsum watch orders --json | jq -r 'select(.kind == "left") | "\\(.id) \\(.reason)"'
    """
    if service is not None:
        check_label("service", service)
    if capability is not None:
        check_capability(capability)
    run(while_read(_watch(where, service, capability, as_json)))


async def _watch(where: Where, service: str | None, capability: str | None, as_json: bool) -> None:
    async with connect(where.settings, namespace=where.namespace, name="adsum watch") as registry:
        await ready(registry.broker, where.timeout)
        heard(outages=True)
        services = () if service is None else (service,)
        poll = where.config.poll_interval
        async with registry.directory(*services, capability=capability, poll_interval=poll) as directory:
            lines = None if as_json else Lines(COLUMNS)
            telling = asyncio.create_task(_tell_states(directory))
            try:
                async for change in directory.changes():
                    _show(change, await _said(registry.broker, change), lines)
            finally:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)


async def _tell_states(directory: Directory) -> None:
    """Say if nobody is there at first, when what is shown can no longer be relied on, and when it can again."""
    await directory.loaded()
    if not len(directory):
        note(f"nobody is there yet of {str(directory).removeprefix('directory of ')}; who comes is shown here")
    before = directory.state
    while True:
        await asyncio.sleep(0.5)
        now = directory.state
        if now != before and now == "stale":
            note("nothing proves any more that this is complete: the broker is away, or no adsumd leads (adsum status)")
        elif now != before and before == "stale":
            note("complete again")
        before = now


async def _said(broker: Broker, change: Change) -> Event | None:
    """The event that ended a life, where that is what changed and the log can be asked."""
    departed = change.departed
    if departed is None or change.after is not None:
        return None
    try:
        raw = await broker.message_at(EVENTS, departed.revision)
        event = decode_event(raw.data or b"") if raw is not None else None
    except (BrokerUnavailable, BrokerRefused, Undecodable):
        return None
    return event if event is not None and event.term == departed.term else None


def _show(change: Change, said: Event | None, lines: Lines | None) -> None:
    now = time.time()
    if lines is None:
        show_json_lines([{"time": iso(now)} | change_fields(change, said)])
        return
    one = change.instance
    state = condition(change.after) if change.after is not None else Cell("gone", "red")
    kind = Cell(change.kind, _STYLES[change.kind])
    lines.show([[Cell(local(now)), kind, Cell(one.service), Cell(one.id), state, Cell(_detail(change, said))]])


def change_fields(change: Change, said: Event | None) -> dict[str, Any]:
    """The fields of JSON of a change. `reason`: the type of the event that ended a life, "" if it did not end;
    `detail`: what that event, `said`, says."""
    one, departed = change.instance, change.departed
    return {
        "kind": change.kind,
        **one.key._asdict(),
        "term": one.term,
        "revision": departed.revision if departed is not None else one.revision,
        "reason": _reason(change),
        "detail": detail(said) if said is not None else "",
        "before": instance_fields(change.before) if change.before is not None else None,
        "after": instance_fields(change.after) if change.after is not None else None,
    }


def _reason(change: Change) -> str:
    return change.departed.reason if change.departed is not None and change.after is None else ""


def _detail(change: Change, said: Event | None) -> str:
    if change.after is None:
        by = f" by {author_of(said.by)}" if said is not None and said.by.kind == "operator" else ""
        told = detail(said) if said is not None else ""
        return f"{_reason(change)}{by}" + (f": {told}" if told else "")
    if change.before is None:
        return summary(change.after)
    return "; ".join(differences(change.before, change.after))
