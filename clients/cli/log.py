"""`adsum log`: what was said, in the order in which it was said."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.durations import format_duration
from adsum.events.errors import BrokerUnavailable, Undecodable
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Event,
    Expired,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Resumed,
    Silence,
    Updated,
)
from adsum.events.names import Key, check_label
from adsum.events.reader import Message, ReaderLost, StreamReader
from adsum.events.streams import EVENTS, read_epoch

from .options import Where, broker_options, json_option, pass_where
from .output import Cell, iso, show_json_lines, show_rows
from .session import heard, reading, run
from .shown import summary

__all__ = ["author_of", "detail", "event_fields", "log", "type_of"]

TITLES = ("SEQUENCE", "TIME", "SERVICE", "ID", "EVENT", "AUTHOR", "DETAIL")
WIDTHS = (8, 24, 12, 36, 14, 8, 0)
UNREADABLE = "unreadable"
_STYLES = {
    "registered": "green",
    "resumed": "green",
    "lapsed": "yellow",
    "expired": "red",
    "deregistered": "cyan",
    UNREADABLE: "red",
}


@click.command(short_help="The log: what was said of every instance, in order.")
@click.argument("service", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is said from now on, until Ctrl-C.")
@json_option
@broker_options
@pass_where
def log(where: Where, service: str | None, follow: bool, as_json: bool) -> None:
    """Every lifecycle event of SERVICE, or of all services, from the first one on.

    A message that cannot be read is shown as such, with the reason. With --json one line an event: its place in the
    log, whose it is, who said it and what it says.

    \b
    Examples:
      adsum log orders
      adsum log --follow
      adsum log --json | jq -r 'select(.type == "expired") | "\\(.time) \\(.service)/\\(.id)"'
    """
    if service is not None:
        check_label("service", service)
    if follow:
        heard(outages=True)
    run(_log(where, subjects.events(where.namespace, service or "*"), follow, as_json))


async def _log(where: Where, wanted: str, follow: bool, as_json: bool) -> None:
    async with reading(where) as broker:
        await read_epoch(broker)
        if not as_json:
            show_rows([[Cell(title, "bold") for title in TITLES]], WIDTHS)
        shown = 0
        while True:
            try:
                async with StreamReader(broker, EVENTS, [wanted], start=shown + 1) as reader:
                    while batch := await (reader.batch() if follow else reader.to_end()):
                        _show(batch, as_json)
                        shown = batch[-1].sequence
                return
            except (ReaderLost, BrokerUnavailable):
                await _again(broker, where, follow)


async def _again(broker: Broker, where: Where, follow: bool) -> None:
    """Before reading on after a loss: followers wait for ever, others as long as they would at the start."""
    if follow:
        await asyncio.sleep(0.5)  # paces a broker that is there and refuses
        await broker.ready(float("inf"))
    else:
        await broker.ready(where.timeout)


def _show(batch: list[Message], as_json: bool) -> None:
    if as_json:
        show_json_lines(event_fields(message) for message in batch)
    else:
        show_rows((_cells(message) for message in batch), WIDTHS)


def _read(message: Message) -> tuple[Key, Event | str]:
    """Whose it is, and the event or why it cannot be read."""
    key = subjects.key_of(message.subject)
    try:
        return key, decode_event(message.data)
    except Undecodable as error:
        return key, str(error)


def _cells(message: Message) -> list[Cell]:
    key, event = _read(message)
    kind = UNREADABLE if isinstance(event, str) else type_of(event)
    return [
        Cell(str(message.sequence)),
        Cell(iso(message.time)),
        Cell(key.service),
        Cell(key.id),
        Cell(kind, _STYLES.get(kind, "")),
        Cell("-" if isinstance(event, str) else author_of(event.by)),
        Cell(event if isinstance(event, str) else detail(event)),
    ]


def event_fields(message: Message) -> dict[str, Any]:
    """The fields of JSON of one message of the log. `id` is the instance's, `event` the event's own."""
    key, event = _read(message)
    fields: dict[str, Any] = {"sequence": message.sequence, "time": iso(message.time), **key._asdict()}
    if isinstance(event, str):
        return fields | {"type": UNREADABLE, "reason": event, "data": message.data.decode(errors="backslashreplace")}
    said: dict[str, Any] = msgspec.to_builtins(event)
    fields |= {"type": said.pop("type"), "author": said.pop("by"), "event": said.pop("id")}
    return fields | said


def type_of(event: Event) -> str:
    """The type of an event as in its encoding: "registered", "health-changed", …"""
    return str(event.__struct_config__.tag)


def author_of(by: Author) -> str:
    """Who said it, as one word: "owner", "operator:ann@desk"."""
    return f"{by.kind}:{by.name}" if by.name else by.kind


def detail(event: Event) -> str:
    """What an event says beyond its type, on one line."""
    match event:
        case Registered() | Updated():
            return " ".join(_said(event))
        case HealthChanged(health=what, reason=reason) | ModeChanged(mode=what, reason=reason):
            return f"{what}: {reason}" if reason else what
        case Lapsed(evidence=evidence) | Resumed(evidence=evidence) | Expired(evidence=evidence):
            return _evidence(evidence)
        case Deregistered(reason=reason):
            return reason


def _said(event: Registered | Updated) -> Iterator[str]:
    yield summary(event.instance)
    if isinstance(event, Registered) and event.health != "passing":
        yield event.health
    if isinstance(event, Registered) and event.mode != "serving":
        yield event.mode
    yield f"ttl {format_duration(event.instance.ttl)}"


def _evidence(silence: Silence) -> str:
    return f"silent {silence.silent:.1f}s after heartbeat {silence.counter}, ttl {format_duration(silence.ttl)}"
