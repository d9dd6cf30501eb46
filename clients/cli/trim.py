"""`adsum trim`: the beginning of the log goes into a file."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click

from adsum.events.archive import check_archive
from adsum.events.broker import Broker
from adsum.events.description import Description
from adsum.events.errors import LogUnfinished
from adsum.events.exporting import Exported, Span, log_now
from adsum.events.ids import new_id
from adsum.events.lifecycle import Updated
from adsum.events.log import Outrun, last_word, say
from adsum.events.notes import Notes
from adsum.events.questions import Moment
from adsum.events.reader import Message
from adsum.events.signals import Instance
from adsum.events.streams import TRIMMING
from adsum.events.trimming import finish, trim

from .export import archive_cells, archive_fields, exported, show_facts
from .lead import leading
from .moments import MOMENT, TIMES
from .operate import operator
from .options import Where, broker_options, json_option, pass_where
from .output import note, show_json
from .session import Failed, reading, run
from .snapshot import snapshot

__all__ = ["trim_log"]

YOUNGEST = 3600.0
"""Seconds for which everything stays: a publish that is on its way may rely on what was said last."""
AT_ONCE = 64


@click.command("trim", short_help="Remove the beginning of the log, once it lies in a file.", epilog=TIMES)
@click.option("--before", metavar="TIME", type=MOMENT, help="Remove what was said before.")
@click.option("--export", "file", metavar="FILE", help="Where what is removed goes; a file that is not there yet.")
@click.option("--finish", "finishing", is_flag=True, help="Let the log take events again after a trim was cut off.")
@json_option
@broker_options
@pass_where
def trim_log(where: Where, before: Moment | None, file: str | None, finishing: bool, as_json: bool) -> None:
    """Write the log up to a moment into FILE, read that back, and then remove it from the log.

    Keep the file: a catalog that is to be built anew needs it as its base (adsum rebuild --into DSN --base FILE). An
    adsumd must lead; each removes the same from its catalog, and refuses questions about what was before. What was said
    within the last hour stays, and who is present now stays present: of each whose last event would go, it is said
    again what it last said of itself. For some milliseconds nothing is stored; whoever speaks tries again by itself.

    \b
    Examples:
      adsum trim --before 2026-01-01 --export /var/backups/adsum-2025.jsonl.gz
      adsum trim --finish
    """
    if finishing:
        if before is not None or file is not None:
            raise click.UsageError("--finish stands alone: what it finishes is written in the log.")
        run(_finish(where))
        return
    if before is None or file is None:
        raise click.UsageError("Missing option '--before' or '--export': both are needed.")
    if file == "-" or Path(file).exists():
        raise Failed(f"{file} is there already: what is removed goes into a file of its own")
    done = run(_trim(where, before, file))
    if done is None:
        note("nothing is to be removed: the log begins there, or what is before was said within the last hour")
    elif as_json:
        show_json(archive_fields(file, done))
    else:
        show_facts(archive_cells(file, done))


async def _finish(where: Where) -> None:
    async with reading(where) as broker:
        notes = await finish(broker)
        told = f"it is trimmed up to @{notes.trimmed}" if notes.trimmed else "nothing of it was ever trimmed"
        note(f"the log takes events; {told}")


async def _trim(where: Where, before: Moment, file: str) -> Exported | None:
    async with reading(where) as broker:
        notes, end, _ = await log_now(broker)
        if notes.trimming:
            raise LogUnfinished(TRIMMING.format(notes.trimming))
        folded = await _folded(broker)
        ends = _Ends(before, min(folded, end - 1), time.time() - YOUNGEST)
        done = await exported(broker, file, Span(ends=ends, new=True))
        if not done.trailer.messages:
            await asyncio.to_thread(Path(file).unlink)
            return None
        if check_archive(file) != (done.header, done.trailer):
            raise Failed(f"{file} does not hold what was written to it; nothing was removed")
        await _keep_present(broker, notes, done.trailer.last)
        await trim(broker, done)
        return done


async def _folded(broker: Broker) -> int:
    """Up to where the leading adsumd has folded the log and told of it. Raises Failed if none leads."""
    lead, _ = await leading(broker)
    if lead is None or not lead.leads:
        raise Failed("no adsumd leads: it tells who is present, and has to have read what is removed; start it")
    return min(lead.revision, lead.announced)


class _Ends:
    """Whether a message is one that stays: then all that come after it stay too."""

    def __init__(self, before: Moment, folded: int, young: float) -> None:
        self._before, self._folded, self._young = before, folded, young

    def __call__(self, message: Message) -> bool:
        if message.sequence > self._folded or message.time >= self._young:
            return True
        if self._before.revision is not None:
            return message.sequence >= self._before.revision
        return self._before.time is not None and message.time >= self._before.time  # no time: now


async def _keep_present(broker: Broker, notes: Notes, through: int) -> None:
    """Whoever is present has its last event after `through`: its owner and the reaper rely on finding that."""
    present = [one for one in await snapshot(broker) if one.epoch == notes.epoch]
    for at in range(0, len(present), AT_ONCE):
        await asyncio.gather(*(_keep(broker, one, through) for one in present[at : at + AT_ONCE]))


async def _keep(broker: Broker, one: Instance, through: int) -> None:
    word = await last_word(broker, one.key)
    if word is None or word.sequence > through:
        return
    said = Description(**{name: getattr(one, name) for name in Description.__struct_fields__})
    event = Updated(id=new_id(), term=one.term, by=operator(), instance=said)
    try:
        await say(broker, one.key, event, word.sequence)
    except Outrun:
        return  # somebody spoke: that is its last event now
