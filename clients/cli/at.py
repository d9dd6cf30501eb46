"""`adsum at`: who was there at a moment."""

from __future__ import annotations

import click

from adsum.clients.history import History
from adsum.events.names import check_label
from adsum.events.questions import Moment, Page, Version

from .moments import MOMENT, TIMES, Dated
from .near import near
from .options import Where, broker_options, json_option, pass_where
from .output import note, show_json, show_line, show_table
from .past import Instant, asking, instance_of, instant
from .session import run
from .shown import INSTANCE_TITLES, instance_cells, instance_fields

__all__ = ["at"]


@click.command(cls=Dated, short_help="Who was there at a moment of the past.", epilog=TIMES)
@click.argument("time", type=MOMENT)
@click.argument("service", required=False)
@click.option("--routable", is_flag=True, help="Only those that could be called.")
@json_option
@broker_options
@pass_where
def at(where: Where, time: Moment, service: str | None, routable: bool, as_json: bool) -> None:
    """The instances of SERVICE, or of all services, that were there at TIME, in the state in which they were.

    The first line tells which time and which revision of the log that was. Columns and STATE are those of
    `adsum instances`. With --json one document: revision, time, epoch, instances. Where nobody was there a note says
    so, which is no error.

    \b
    Examples:
      adsum at "yesterday 14:32"
      adsum at -2h orders --routable
      adsum at @1234 --json | jq -r '.instances[] | "\\(.service)/\\(.id) \\(.health)"'
    """
    if service is not None:
        check_label("service", service)
    world, then, hint = run(_look(where, time, service or ""))
    found = sorted((instance_of(version, world.epoch) for version in world.items), key=lambda one: one.key)
    shown = [one for one in found if one.routable or not routable]
    if as_json:
        fields = then.fields | {"epoch": world.epoch, "instances": [instance_fields(one) for one in shown]}
        show_json(fields)
    elif shown:
        count = f"{len(found)} instance{'s' if len(found) > 1 else ''}, {sum(one.routable for one in found)} routable"
        show_line(f"{then}: {count}")
        show_table(INSTANCE_TITLES, [instance_cells(one) for one in shown])
    if not shown:
        of = f" of {service}" if service else ""
        told = f"; not routable: {len(found)}" if found else hint
        could = "could be called" if found else "was there"
        note(f"nobody{of} in namespace {where.namespace} {could} at {then}{told}")


async def _look(where: Where, moment: Moment, service: str) -> tuple[Page[Version], Instant, str]:
    """Who was there, when that was, and which service was perhaps meant."""
    async with asking(where) as history:
        world = await history.world(moment, where.namespace, service)
        then = await instant(history, where.namespace, moment, world.until)
        hint = await _hint(history, where, world, service) if service and not world.items else ""
        return world, then, hint


async def _hint(history: History, where: Where, world: Page[Version], service: str) -> str:
    everyone = await history.world(Moment(revision=world.until), where.namespace)
    return near(service, {version.service for version in everyone.items})
