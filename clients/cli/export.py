"""`adsum export`: the log, or a part of it, as a file."""

from __future__ import annotations

from typing import Any

import click

from adsum.events.archive import Header, Trailer
from adsum.events.broker import Broker
from adsum.events.exporting import Exported, Span, export, log_now
from adsum.events.questions import Moment

from .moments import MOMENT, TIMES
from .options import Where, broker_options, json_option, pass_where
from .output import Cell, Column, Lines, PipeClosed, note, show_json
from .progress import progress
from .session import Failed, reading, run

__all__ = ["archive_cells", "archive_fields", "export_log", "exported", "show_facts"]

_BEGINNING = Moment(revision=0)


@click.command("export", short_help="Write the log into a file, to keep it or to import it elsewhere.", epilog=TIMES)
@click.argument("file")
@click.option("--since", metavar="TIME", type=MOMENT, default=_BEGINNING, help="Only what was said after that.")
@json_option
@broker_options
@pass_where
def export_log(where: Where, file: str, since: Moment, as_json: bool) -> None:
    """Write the log into FILE ("-": standard output; compressed where the name ends in .gz).

    The file is text, a line of JSON a message, and says of itself whether it is whole: its last line holds the running
    hash, which is printed here too. Keep that hash elsewhere to prove later that nothing was edited. It holds all
    namespaces, unless one is named here with --namespace.

    \b
    Examples:
      adsum export /var/backups/adsum.jsonl.gz
      adsum export - | jq -c '.payload // empty'
      adsum export incident.jsonl --since 2026-01-31T14:00
    """
    done = run(_export(where, file, Span(since, namespace=where.only)))
    if as_json and file != "-":
        show_json(archive_fields(file, done))
    elif file != "-":
        show_facts(archive_cells(file, done))
    else:
        note(f"{done.trailer.messages} messages, running hash {done.trailer.head}")


async def _export(where: Where, file: str, span: Span) -> Exported:
    async with reading(where) as broker:
        return await exported(broker, file, span)


async def exported(broker: Broker, file: str, span: Span) -> Exported:
    """Write the file and show how far it is. Raises Failed where the file cannot be written."""
    _, _, messages = await log_now(broker)
    try:
        with progress("read", messages) as told:
            return await export(broker, file, span, told)
    except BrokenPipeError:
        raise PipeClosed("nobody reads what is exported any more") from None
    except OSError as error:
        raise Failed(f"{file} cannot be written: {error.strerror or error}") from None


def archive_fields(file: str, done: tuple[Header, Trailer]) -> dict[str, Any]:
    """The fields of JSON of a file."""
    header, trailer = done
    return {
        "file": file,
        "epoch": header.epoch,
        "namespace": header.namespace or None,
        "first": header.first,
        "last": trailer.last,
        "messages": trailer.messages,
        "head": trailer.head,
    }


def archive_cells(file: str, done: tuple[Header, Trailer]) -> list[tuple[str, str]]:
    """What a person is told of a file."""
    header, trailer = done
    facts = [("file", file), ("epoch", header.epoch)]
    if header.namespace:
        facts.append(("namespace", f"{header.namespace} only"))
    span = f"{header.first} to {trailer.last}" if trailer.messages else f"none from {header.first} on"
    return [*facts, ("sequences", span), ("messages", f"{trailer.messages}"), ("head", trailer.head)]


def show_facts(facts: list[tuple[str, str]]) -> None:
    """Names and what they are, a line each."""
    Lines([Column("", least=9), Column("")]).show([Cell(name, "bold"), Cell(told)] for name, told in facts)
