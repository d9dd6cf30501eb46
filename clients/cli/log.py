"""`adsum log`: what was said, in the order in which it was said."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import click
import msgspec

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_event
from adsum.events.durations import format_duration
from adsum.events.errors import AdsumError, BrokerUnavailable, InvalidValue, NotYet, Undecodable
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
from adsum.events.notes import notes_of
from adsum.events.questions import EVENT_TYPES, Moment
from adsum.events.reader import Message, ReaderLost, StreamReader
from adsum.events.streams import EVENTS, read_epoch

from .moments import MOMENT, TIMES, Dated, check_order, local
from .near import near, near_ids
from .options import Where, broker_options, json_option, pass_where
from .output import SHORTENED, Cell, Column, Lines, brief, iso, note, show_json_lines
from .session import heard, reading, run, while_read
from .shown import summary
from .snapshot import snapshot

__all__ = ["UNREADABLE", "Wanted", "author_of", "check_type", "detail", "event_fields", "log", "type_of"]

COLUMNS = (
    Column("SEQUENCE"),
    Column("TIME", shorten=lambda time: f"{time[5:10]} {time[11:19]}", spare=True),
    Column("SERVICE"),
    Column("ID", shorten=brief),
    Column("EVENT", least=12),
    Column("AUTHOR", spare=True),
    Column("DETAIL"),
)
CLOCKS = 3600.0
"""Seconds by which clocks of brokers may differ, at the very most."""
UNREADABLE = "unreadable"
TYPES = (*EVENT_TYPES, UNREADABLE)
_STYLES = {
    "registered": "green",
    "resumed": "green",
    "lapsed": "yellow",
    "expired": "red",
    "deregistered": "cyan",
    UNREADABLE: "red",
}


@click.command(cls=Dated, short_help="The log: what was said of every instance, in order.", epilog=TIMES)
@click.argument("service", required=False)
@click.option("--instance", metavar="ID", help="Only what is about this instance.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Only events of this type; may be repeated.")
@click.option("--since", metavar="TIME", type=MOMENT, help="Only what was said after that.")
@click.option("--until", metavar="TIME", type=MOMENT, help="Only what was said up to then.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is said from now on, until Ctrl-C.")
@json_option
@broker_options
@pass_where
def log(
    where: Where,
    service: str | None,
    instance: str | None,
    types: tuple[str, ...],
    since: Moment | None,
    until: Moment | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Every lifecycle event of SERVICE, or of all services, from the first one on.

    Types are registered, updated, health-changed, mode-changed, lapsed, resumed, expired and deregistered. A message
    that cannot be read is shown as such (type "unreadable"), with the reason. Times are those of this machine's zone.
    With --json one line an event: its place in the log, whose it is, who said it and what it says. Where there is none
    a note says so, which is no error. It is read from the broker itself, also while no adsumd runs.

    \b
    Examples:
      adsum log orders
      adsum log orders --instance web-1 --since "yesterday 14:00"
      adsum log --type expired --type deregistered --since -24h
      adsum log --follow --since now
      adsum log --json | jq -r 'select(.type == "expired") | "\\(.time) \\(.service)/\\(.id)"'
    """
    if service is not None:
        check_label("service", service)
    if instance is not None:
        if SHORTENED in instance:
            raise InvalidValue("instance id", instance, "is shortened; adsum log | less -S shows it in full")
        check_label("instance id", instance)
    for kind in types:
        check_type(kind)
    if since is not None and until is not None:
        check_order(since, until, "until", "--since")
    if follow and until is not None:
        raise click.UsageError("--follow goes on for ever and --until ends: give one of them.")
    if follow:
        heard(outages=True)
    wanted = Wanted(where.namespace, service, instance, frozenset(types), since, until)
    run(while_read(_log(where, wanted, follow, as_json)))


def check_type(kind: str) -> str:
    """Give `kind` back if it is a type that the log shows, else raise InvalidValue with the nearest ones."""
    if kind not in TYPES:
        raise InvalidValue("type", kind, f"is none of {', '.join(TYPES)}{near(kind, TYPES)}")
    return kind


class Wanted(NamedTuple):
    """Which messages of the log are wanted; None: any. A time counts as the broker gave it to each message."""

    namespace: str
    service: str | None = None
    instance: str | None = None
    types: frozenset[str] = frozenset()
    since: Moment | None = None
    until: Moment | None = None

    @property
    def subject(self) -> str:
        """The filter that the broker applies."""
        return subjects.events(self.namespace, self.service or "*", self.instance or "*")

    @property
    def narrowed(self) -> bool:
        """Whether more than the names is asked for."""
        return bool(self.types or self.since or self.until)

    def __str__(self) -> str:
        whose = f"{self.service}/{self.instance}" if self.service and self.instance else self.service or self.instance
        fitting = " that fits the other options" if self.narrowed else ""
        return f"{whose or 'any service'} in namespace {self.namespace}{fitting}"

    def fits(self, message: Message) -> bool:
        """Whether this message is wanted, whose subject is. Pure."""
        if self.since is not None and _upto(message, self.since):
            return False
        if self.until is not None and not _upto(message, self.until):
            return False
        if not self.types:
            return True
        _, event = _read(message)
        return (UNREADABLE if isinstance(event, str) else type_of(event)) in self.types


def _upto(message: Message, moment: Moment) -> bool:
    """Whether a message was there at a moment."""
    if moment.revision is not None:
        return message.sequence <= moment.revision
    return moment.time is None or message.time <= moment.time


async def _log(where: Where, wanted: Wanted, follow: bool, as_json: bool) -> None:
    lines = None if as_json else Lines(COLUMNS)
    async with reading(where) as broker:
        await read_epoch(broker)
        wanted, read, stored_from = await _begin(broker, wanted)
        shown, noted = 0, False
        while True:
            try:
                reader = StreamReader(broker, EVENTS, [wanted.subject], read + 1, stored_from if not read else None)
                async with reader:
                    while batch := await reader.to_end():
                        shown += _show(wanted, batch, lines)
                        read = batch[-1].sequence
                    if not (shown or noted):
                        note(await _nothing(broker, wanted, follow))
                        noted = True
                    while follow:
                        batch = await reader.batch()
                        _show(wanted, batch, lines)
                        read = batch[-1].sequence
                return
            except (ReaderLost, BrokerUnavailable):
                await _again(broker, where, follow)


async def _begin(broker: Broker, wanted: Wanted) -> tuple[Wanted, int, float | None]:
    """What is wanted, with "now" as the log's end of this moment; after which sequence reading begins, or from which
    time on.

    Nobody wants to wait for a long log if only its end is asked for; but what was imported bears other times than those
    at which it was stored here. Raises NotYet for a revision that is not in the log.
    """
    if wanted.since is None and wanted.until is None:
        return wanted, 0, None
    info = await broker.stream_info(EVENTS)
    end = info.state.last_seq if info is not None else 0
    for moment in (wanted.since, wanted.until):
        if moment is not None and (moment.revision or 0) > end:
            raise NotYet(f"revision {moment.revision} is in the future: the log ends at revision {end}")
    since, until = (Moment(revision=end) if one == Moment() else one for one in (wanted.since, wanted.until))
    wanted = wanted._replace(since=since, until=until)
    if since is None or info is None:
        return wanted, 0, None
    dated = since.time is not None and since.time > CLOCKS and not notes_of(info).imported
    return wanted, since.revision or 0, since.time - CLOCKS if dated and since.time else None


async def _nothing(broker: Broker, wanted: Wanted, follow: bool) -> str:
    said = f"the log says nothing of {wanted}"
    if follow:
        return f"{said} yet; what it will say is shown here"
    with contextlib.suppress(AdsumError):  # a hint is not worth an error
        if wanted.service and not wanted.narrowed:
            there = await snapshot(broker, wanted.namespace)
            ids = [one.id for one in there if one.service == wanted.service]
            if wanted.instance and ids:
                return said + near_ids(wanted.instance, ids)
            return said + near(wanted.service, (one.service for one in there))
    return said


async def _again(broker: Broker, where: Where, follow: bool) -> None:
    """Before reading on after a loss: followers wait for ever, others as long as they would at the start."""
    if follow:
        await asyncio.sleep(0.5)  # paces a broker that is there and refuses
        await broker.ready(float("inf"))
    else:
        await broker.ready(where.timeout)


def _show(wanted: Wanted, batch: list[Message], lines: Lines | None) -> int:
    """Show what is wanted of a batch; how many that were."""
    fitting = [message for message in batch if wanted.fits(message)]
    if lines is None:
        show_json_lines(event_fields(message) for message in fitting)
    elif fitting:
        lines.show(_cells(message) for message in fitting)
    return len(fitting)


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
        Cell(local(message.time)),
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
    return f"{by.kind}:{by.name}" if by.name and by.kind not in ("owner", "reaper", "prober") else by.kind


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
