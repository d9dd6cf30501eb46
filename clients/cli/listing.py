"""`adsum services` and `adsum instances`: who is there now."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import click

from adsum.events.names import check_capability, check_label
from adsum.events.signals import Instance

from .near import near
from .options import Where, broker_options, json_option, pass_where
from .output import Cell, note, show_json, show_table
from .session import reading, run
from .shown import INSTANCE_TITLES, instance_cells, instance_fields
from .snapshot import snapshot

__all__ = ["count", "instances", "services"]

SERVICE_TITLES = ("SERVICE", "INSTANCES", "ROUTABLE", "STALE", "CRITICAL", "DRAINING", "MAINTENANCE", "CAPABILITIES")


@click.command(short_help="The services, and how many of their instances may be called.")
@json_option
@broker_options
@pass_where
def services(where: Where, as_json: bool) -> None:
    """The services of a namespace, and in what state their instances are.

    ROUTABLE are those that may be called: heard within their TTL, not critical, serving.

    \b
    Examples:
      adsum services
      adsum services --json | jq -r '.[] | select(.routable == 0) | .service'
    """
    found = run(_look(where))
    rows = [_service(name, list(members)) for name, members in groupby(found, key=lambda one: one.service)]
    if as_json:
        show_json(rows)
    elif rows:
        show_table(SERVICE_TITLES, [_service_cells(row) for row in rows])
    else:
        note(f"no service is registered in namespace {where.namespace}")


@click.command(short_help="The instances, by default those that may be called.")
@click.argument("service", required=False)
@click.option("--capability", metavar="NAME", help="Only those that have this capability.")
@click.option("--all", "everyone", is_flag=True, help="Also those that may not be called: stale, critical, draining.")
@json_option
@broker_options
@pass_where
def instances(where: Where, service: str | None, capability: str | None, everyone: bool, as_json: bool) -> None:
    """The instances of SERVICE, or of all services, that may be called.

    STATE is "up", or what keeps an instance from being called: stale, critical, draining, maintenance. Where there is
    none a note says so, which is no error.

    \b
    Examples:
      adsum instances orders
      adsum instances --capability payments --all
      adsum instances orders --json | jq -r '.[].endpoints[0] | "\\(.host):\\(.port)"'
    """
    if service is not None:
        check_label("service", service)
    if capability is not None:
        check_capability(capability)
    found = run(_look(where))
    wanted = [
        one
        for one in found
        if service in (None, one.service) and (capability is None or capability in one.capabilities)
    ]
    shown = [one for one in wanted if everyone or one.routable]
    if as_json:
        show_json([instance_fields(one) for one in shown])
    elif shown:
        show_table(INSTANCE_TITLES, [instance_cells(one) for one in shown])
    if not shown:
        note(_nobody(found, wanted, where.namespace, service, capability))


async def _look(where: Where) -> list[Instance]:
    async with reading(where) as broker:
        return await snapshot(broker, where.namespace)


def count(members: Sequence[Instance]) -> dict[str, int]:
    """How many there are, and how many in which state; one may be in several."""
    return {
        "instances": len(members),
        "routable": sum(one.routable for one in members),
        "stale": sum(one.liveness == "stale" for one in members),
        "warning": sum(one.health == "warning" for one in members),
        "critical": sum(one.health == "critical" for one in members),
        "draining": sum(one.mode == "draining" for one in members),
        "maintenance": sum(one.mode == "maintenance" for one in members),
    }


def _service(name: str, members: Sequence[Instance]) -> dict[str, Any]:
    capabilities = sorted({capability for one in members for capability in one.capabilities})
    return {
        "namespace": members[0].namespace,
        "service": name,
        **count(members),
        "capabilities": capabilities,
    }


def _service_cells(row: dict[str, Any]) -> list[Cell]:
    def number(field: str, style: str) -> Cell:
        return Cell(str(row[field]), style if row[field] else "")

    return [
        Cell(row["service"]),
        Cell(str(row["instances"])),
        Cell(str(row["routable"]), "green" if row["routable"] else "red"),
        number("stale", "red"),
        number("critical", "red"),
        number("draining", "yellow"),
        number("maintenance", "yellow"),
        Cell(",".join(row["capabilities"])),
    ]


def _nobody(
    found: Sequence[Instance],
    wanted: Sequence[Instance],
    namespace: str,
    service: str | None,
    capability: str | None,
) -> str:
    of = f" of {service}" if service else ""
    having = f" with capability {capability}" if capability else ""
    if wanted:
        return f"no instance{of}{having} in namespace {namespace} may be called now; --all shows {len(wanted)}"
    names = {one.service for one in found}
    hint = near(service, names) if service and service not in names else ""
    return f"no instance{of}{having} in namespace {namespace}{hint}"
