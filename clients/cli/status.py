"""`adsum status`: does the registry work, and how far is it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import click
import msgspec
from nats.js.api import PeerInfo, StreamInfo

from adsum.events.broker import Broker
from adsum.events.errors import BrokerUnavailable, LogUnfinished, StreamMismatch
from adsum.events.notes import notes_of
from adsum.events.outage import ALARM_AFTER
from adsum.events.signals import Instance, Trouble
from adsum.events.streams import BEATS, EVENTS, TOPOLOGY, TRIMMING, epoch_of_log

from .lead import LEASE, Lead, leading
from .listing import count
from .options import Where, broker_options, json_option, pass_where
from .output import Cell, Column, Lines, brief, show_blank, show_json, show_table
from .session import reading, run
from .snapshot import snapshot

__all__ = ["Report", "StreamState", "status"]

STREAM_TITLES = ("STREAM", "MESSAGES", "BYTES", "LAST SEQUENCE")
MOST_HELD = 20
"""A tick names no more services than that."""
_COPY_REMEDY = "look at that server: without most of the copies nothing can be stored"
NAMESPACE_TITLES = ("NAMESPACE", "SERVICES", "INSTANCES", "ROUTABLE", "STALE", "CRITICAL", "DRAINING")


class StreamState(msgspec.Struct, frozen=True):
    """What one stream holds; all zero where it is missing."""

    name: str
    present: bool = False
    messages: int = 0
    bytes: int = 0
    last_sequence: int = 0


class Report(msgspec.Struct, frozen=True):
    """All that `adsum status` tells; `lag` counts events of the log that were not folded at the last tick.

    `troubles` are those of the leader at its last tick, and copies of streams that are away; what has lasted too long
    is among the `problems` too.
    """

    working: bool
    problems: list[str]
    troubles: list[Trouble]
    broker: dict[str, str]
    epoch: str | None
    streams: list[StreamState]
    leader: Lead | None
    last_sequence: int
    lag: int | None
    namespaces: list[dict[str, Any]]


@click.command(short_help="Whether the registry works, and how far it has read.")
@json_option
@broker_options
@pass_where
def status(where: Where, as_json: bool) -> int:
    """The broker, the streams, the leading adsumd and how far it has read the log, and all namespaces.

    Ends with 1 if a stream is missing, no adsumd leads, or its trouble lasts, so it can serve as a check.

    \b
    Examples:
      adsum status
      adsum status --json | jq .lag
    """
    report = run(_look(where))
    if as_json:
        show_json(report)
    else:
        _show(report)
    return 0 if report.working else 1


async def _look(where: Where) -> Report:
    async with reading(where) as broker:
        try:
            return await _report(broker)
        except BrokerUnavailable as error:
            remedy = "its log says why; in a cluster most of the servers have to be up"
            raise BrokerUnavailable(
                f"the broker at {broker.url} is there and does not work: {error}; {remedy}"
            ) from None


async def _report(broker: Broker) -> Report:
    infos = {name: await broker.stream_info(name) for name in (EVENTS, BEATS, TOPOLOGY)}
    complete = None not in infos.values()
    lead, troubles = await leading(broker) if infos[BEATS] is not None else (None, [])
    troubles += [trouble for name, info in infos.items() for trouble in _away(name, info)]
    unheard = [problem for name, info in infos.items() for problem in _unheard(name, info)]
    events = infos[EVENTS]  # as it was before that tick, which is due to have folded it
    last = events.state.last_seq if events is not None else 0
    epoch, mismatch = _epoch(events)
    present = await snapshot(broker) if complete and epoch is not None else []
    missing = [f"stream {name} is missing" for name, info in infos.items() if info is None]
    problems = [*missing, *mismatch, *_faults(lead, complete), *_lasting(troubles), *unheard]
    return Report(
        working=not problems,
        problems=problems,
        troubles=troubles,
        broker={"url": broker.url, "version": broker.server_version},
        epoch=epoch,
        streams=[_state(name, info) for name, info in infos.items()],
        leader=lead,
        last_sequence=last,
        lag=max(0, last - lead.revision) if lead is not None else None,
        namespaces=[_namespace(name, list(members)) for name, members in _by_namespace(present)],
    )


def _epoch(info: StreamInfo | None) -> tuple[str | None, list[str]]:
    if info is None:
        return None, []
    trimming = notes_of(info).trimming
    try:
        return epoch_of_log(info), [TRIMMING.format(trimming)] if trimming else []
    except (StreamMismatch, LogUnfinished) as error:
        return None, [str(error)]


def _faults(lead: Lead | None, complete: bool) -> list[str]:
    remedy = (
        "start adsumd on this broker (adsumd --nats URL), or look at the logs of the adsumd that run: "
        "a daemon whose catalog does not answer does not lead"
    )
    if not complete:
        return [f"the registry was never set up here, or lost its streams: {remedy}"]
    if lead is None:
        return [f"no adsumd leads: no tick within {LEASE:g} s and none before; {remedy}"]
    if not lead.leads:
        return [f"no adsumd leads: {_last(lead)}; {remedy}"]
    return []


def _missing_copies(info: StreamInfo | None) -> Iterable[PeerInfo]:
    """The copies of a stream that a cluster does not keep up now."""
    replicas = (info.cluster.replicas if info is not None and info.cluster is not None else None) or []
    return [peer for peer in replicas if peer.offline or not peer.current]


def _away(name: str, info: StreamInfo | None) -> Iterable[Trouble]:
    """Those that were heard of since the stream's leader was elected."""
    for peer in _missing_copies(info):
        if peer.active:
            reason = f"the copy on {peer.name} is {'away' if peer.offline else 'behind'}"
            lasted = round(peer.active / 1e9, 1)
            yield Trouble(what=f"stream {name}", reason=reason, lasted=lasted, remedy=_COPY_REMEDY)


def _unheard(name: str, info: StreamInfo | None) -> Iterable[str]:
    """Those that were not: nobody knows for how long they are away, so it may be long."""
    for peer in _missing_copies(info):
        if not peer.active:
            yield f"stream {name}: the copy on {peer.name} is away since before its leader was elected; {_COPY_REMEDY}"


def _lasting(troubles: Iterable[Trouble]) -> list[str]:
    return [_told(trouble) for trouble in troubles if trouble.lasted > ALARM_AFTER]


def _told(trouble: Trouble) -> str:
    return f"{trouble.what}: {trouble.reason}, for {trouble.lasted:.0f} s; {trouble.remedy}"


def _state(name: str, info: StreamInfo | None) -> StreamState:
    if info is None:
        return StreamState(name)
    state = info.state
    return StreamState(name, True, state.messages, state.bytes, state.last_seq)


def _by_namespace(present: list[Instance]) -> Iterable[tuple[str, Iterable[Instance]]]:
    return groupby(present, key=lambda one: one.namespace)


def _namespace(name: str, members: list[Instance]) -> dict[str, Any]:
    return {"namespace": name, "services": len({one.service for one in members}), **count(members)}


def _show(report: Report) -> None:
    lead = report.leader
    facts = [
        ("broker", Cell(f"{report.broker['url']} (nats-server {report.broker['version']})")),
        ("epoch", Cell(report.epoch or "none")),
        ("leader", _leader(lead)),
    ]
    if lead is not None:
        late = f" ({report.lag} behind the log's {report.last_sequence})" if report.lag else " (the log's end)"
        facts.append(("folded", Cell(f"{lead.revision}{late}", "yellow" if report.lag else "")))
        facts.append(("announced", Cell(str(lead.announced))))
    if lead is not None and lead.held:
        more = " and perhaps more" if len(lead.held) >= MOST_HELD else ""
        held = f"{', '.join(lead.held)}{more}: too many fell silent at once, expiry waits"
        facts.append(("held", Cell(held, "yellow")))
    if lead is not None and lead.rejected:
        facts.append(("set aside", Cell(f"{lead.rejected} messages of the log: see the table rejected", "yellow")))
    if lead is not None and lead.reports:
        told = f"{lead.unreachable} unreachable now ({lead.probes} probes for {lead.reports} reports)"
        facts.append(("probes", Cell(told, "yellow" if lead.unreachable else "")))
    facts += [("trouble", Cell(_told(one), "yellow")) for one in report.troubles if one.lasted <= ALARM_AFTER]
    facts += [("problem", Cell(problem, "red")) for problem in report.problems]
    Lines([Column("", least=9), Column("")]).show([Cell(name, "bold"), cell] for name, cell in facts)
    show_blank()
    show_table(STREAM_TITLES, [_stream_cells(state) for state in report.streams])
    if report.namespaces:
        show_blank()
        show_table(NAMESPACE_TITLES, [_namespace_cells(row) for row in report.namespaces])


def _leader(lead: Lead | None) -> Cell:
    if lead is None:
        return Cell("none", "red")
    if lead.leads:
        return Cell(f"{_name(lead)} (ticking, number {lead.tick})", "green")
    return Cell(f"none; {_last(lead)}", "red")


def _last(lead: Lead) -> str:
    if not lead.leader:
        return f"the last leader gave the lease back {lead.age:.0f} s ago"
    return f"{_name(lead)} ticked last, {lead.age:.0f} s ago"


def _name(lead: Lead) -> str:
    """The daemon and its run ("<home>/<run>"), each short; JSON has them whole."""
    home, _, run = lead.leader.partition("/")
    return f"{brief(home)} (run {run[-6:]})" if run else brief(home)


def _stream_cells(state: StreamState) -> list[Cell]:
    if not state.present:
        return [Cell(state.name), Cell("missing", "red"), Cell(""), Cell("")]
    return [Cell(state.name), *(Cell(str(number)) for number in (state.messages, state.bytes, state.last_sequence))]


def _namespace_cells(row: dict[str, Any]) -> list[Cell]:
    return [Cell(str(row[title.lower()])) for title in NAMESPACE_TITLES]
