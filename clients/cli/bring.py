"""`adsum import`: a log out of a file."""

from __future__ import annotations

import click

from adsum.events.importing import Imported, bring

from .export import archive_cells, archive_fields, show_facts
from .lead import check_not_led
from .options import Where, broker_options, json_option, pass_where
from .output import note, show_json
from .progress import progress
from .session import reading, run

__all__ = ["import_log"]


@click.command("import", short_help="Make the log of a broker that has none out of a file.")
@click.argument("file")
@click.option(
    "--replicas", type=click.Choice(["1", "3", "5"]), default="1", help="Copies of each stream, as of adsumd."
)
@json_option
@broker_options
@pass_where
def import_log(where: Where, file: str, replicas: str, as_json: bool) -> None:
    """Make the log out of FILE, which `adsum export` wrote, on a broker that has no log or an empty one.

    Every event gets its own sequence, time and bytes again; the log gets a new epoch, by which services and caches
    know that it is another one, and register or read anew. The whole file is checked before anything is done, and
    the log once it is made: its running hash is the file's. Stop adsumd before, and start it with an empty catalog
    afterwards. An import that was cut off is begun anew.

    \b
    Examples:
      adsum import /var/backups/adsum.jsonl.gz
      adsum import adsum.jsonl --nats nats://new-broker:4222 --replicas 3
    """
    done = run(_import(where, file, int(replicas)))
    if as_json:
        show_json(archive_fields(file, (done.header, done.trailer)) | {"epoch": done.epoch, "was": done.header.epoch})
    else:
        show_facts([*archive_cells(file, (done.header, done.trailer)), ("new epoch", done.epoch)])
    if done.header.first > 1:
        note(
            f"this log begins at {done.header.first}: a catalog of it needs the exports of what was before "
            "(adsum rebuild --into DSN --base FILE)"
        )


async def _import(where: Where, file: str, replicas: int) -> Imported:
    async with reading(where) as broker:
        await check_not_led(broker, "import")
        with progress("checked", None) as checked, progress("imported", None) as stored:
            return await bring(broker, file, replicas, checked, stored)
