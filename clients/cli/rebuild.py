"""`adsum rebuild`: a fresh catalog out of the log."""

from __future__ import annotations

import time

import click

from adsum.events.errors import InvalidValue
from adsum.events.tools import Rebuild, Rebuilt

from .export import show_facts
from .moments import parse_moment
from .options import Where, broker_options, json_option, pass_where
from .output import show_json
from .session import reading, run
from .tools import base_option, load, progress_of

__all__ = ["rebuild"]


@click.command(short_help="Make a fresh catalog out of the log.")
@click.option("--into", "dsn", metavar="DSN", required=True, help="sqlite:///FILE or postgresql://…, empty or begun.")
@click.option("--until", metavar="@REVISION", help="Fold the log only up to this revision.  [default: its end now]")
@base_option
@json_option
@broker_options
@pass_where
def rebuild(where: Where, dsn: str, until: str | None, base: tuple[str, ...], as_json: bool) -> None:
    """Fold the log into a catalog of its own, up to what is its end now.

    The catalog is the one that adsumd would make of the same log, row by row, so it can be compared with it, queried
    in its place, or given to an adsumd that lost its own. What was interrupted goes on where it was when it is run
    again. A catalog that an adsumd uses, or that is another log's, is left alone. Prints the running hash.

    \b
    Examples:
      adsum rebuild --into sqlite:///fresh.db
      adsum rebuild --into postgresql://adsum@db/fresh --json
      adsum rebuild --into sqlite:///as-it-was.db --until @1200
    """
    done = run(_rebuild(where, load("rebuild"), dsn, _revision(until), base), long=True)
    if as_json:
        show_json(done)
    else:
        show_facts(_cells(done))


async def _rebuild(where: Where, tool: Rebuild, dsn: str, until: int | None, base: tuple[str, ...]) -> Rebuilt:
    async with reading(where) as broker:
        with progress_of("folded") as progress:
            return await tool(broker, dsn, until=until, base=base, progress=progress)


def _revision(text: str | None) -> int | None:
    if text is None:
        return None
    moment = parse_moment(text, time.time())
    if not moment.revision:
        raise InvalidValue("until", text, "must be a revision of the log, such as @1200")
    return moment.revision


def _cells(done: Rebuilt) -> list[tuple[str, str]]:
    since = f" (from {done.since} on)" if done.since else ""
    aside = [("set aside", f"{done.rejected}")] if done.rejected else []
    return [
        ("catalog", done.catalog),
        ("epoch", done.epoch),
        ("revision", f"{done.revision}"),
        ("events", f"{done.events}{since}, {done.seconds:.1f} s, {done.rate:,.0f}/s"),
        *aside,
        ("head", done.head),
    ]
