"""`adsum log`: what was said, in the order in which it was said."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.durations import format_duration
from adsum.events.errors import AdsumError, BrokerUnavailable, Undecodable
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

from .near import near
from .options import Where, broker_options, json_option, pass_where
from .output import Cell, Column, Lines, brief, iso, note, show_json_lines
from .session import heard, reading, run, while_read
from .shown import summary
from .snapshot import snapshot

__all__ = ["author_of", "detail", "event_fields", "log", "type_of"]

COLUMNS = (
    Column("SEQUENCE"),
    Column("TIME", shorten=lambda time: f"{time[5:10]} {time[11:19]}", spare=True),
    Column("SERVICE"),
    Column("ID", shorten=brief),
    Column("EVENT", least=12),
    Column("AUTHOR", spare=True),
    Column("DETAIL"),
)
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
    log, whose it is, who said it and what it says. Where there is none a note says so, which is no error.

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
    run(while_read(_log(where, service, follow, as_json)))


async def _log(where: Where, service: str | None, follow: bool, as_json: bool) -> None:
    wanted = subjects.events(where.namespace, service or "*")
    lines = None if as_json else Lines(COLUMNS)
    async with reading(where) as broker:
        await read_epoch(broker)
        shown, noted = 0, False
        while True:
            try:
                async with StreamReader(broker, EVENTS, [wanted], start=shown + 1) as reader:
                    while batch := await reader.to_end():
                        _show(batch, lines)
                        shown = batch[-1].sequence
                    if not (shown or noted):
                        note(await _nothing(broker, where.namespace, service, follow))
                        noted = True
                    while follow:
                        batch = await reader.batch()
                        _show(batch, lines)
                        shown = batch[-1].sequence
                return
            except (ReaderLost, BrokerUnavailable):
                await _again(broker, where, follow)


async def _nothing(broker: Broker, namespace: str, service: str | None, follow: bool) -> str:
    told = f"the log says nothing of {service or 'any service'} in namespace {namespace}"
    if follow:
        return f"{told} yet; what it will say is shown here"
    with contextlib.suppress(AdsumError):  # a hint is not worth an error
        return told + (near(service, (one.service for one in await snapshot(broker, namespace))) if service else "")
    return told


async def _again(broker: Broker, where: Where, follow: bool) -> None:
    """Before reading on after a loss: followers wait for ever, others as long as they would at the start."""
    if follow:
        await asyncio.sleep(0.5)  # paces a broker that is there and refuses
        await broker.ready(float("inf"))
    else:
        await broker.ready(where.timeout)


def _show(batch: list[Message], lines: Lines | None) -> None:
    if lines is None:
        show_json_lines(event_fields(message) for message in batch)
    else:
        lines.show(_cells(message) for message in batch)


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
    """Who said it, as one word: "owner", "reaper", "operator:ann@desk". JSON has the names of all."""
    return f"{by.kind}:{by.name}" if by.name and by.kind not in ("owner", "reaper") else by.kind


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
