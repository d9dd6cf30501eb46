"""Instances as people and programs read them: the cells of a table, the fields of JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from adsum.events.description import Description
from adsum.events.signals import Instance

from .output import Cell, iso

__all__ = ["address", "condition", "instance_cells", "instance_fields", "pairs", "summary"]

INSTANCE_TITLES = ("SERVICE", "ID", "ADDRESS", "STATE", "CAPABILITIES", "VERSION", "ZONE", "WEIGHT", "METADATA")


def instance_fields(instance: Instance) -> dict[str, Any]:
    """The fields of JSON: all that is known, and whether it may be called."""
    fields: dict[str, Any] = msgspec.to_builtins(instance)
    del fields["type"]
    registered_at = fields.pop("registered_at")
    return fields | {"registered_at": iso(registered_at), "routable": instance.routable}


def instance_cells(instance: Instance) -> list[Cell]:
    """One row under INSTANCE_TITLES."""
    return [
        Cell(instance.service),
        Cell(instance.id),
        Cell(address(instance)),
        condition(instance),
        Cell(",".join(instance.capabilities)),
        Cell(instance.version),
        Cell(instance.zone),
        Cell("" if instance.weight == 1 else f"{instance.weight:g}"),
        Cell(pairs(instance.metadata)),
    ]


def address(described: Instance | Description) -> str:
    """All endpoints: "10.0.0.1:80", or "http=10.0.0.1:80,admin=10.0.0.1:81" where there are several."""
    first, *more = described.endpoints
    if not more:
        return first.address
    return ",".join(f"{endpoint.name}={endpoint.address}" for endpoint in described.endpoints)


def condition(instance: Instance) -> Cell:
    """ "up", or all that keeps it from being called, most serious first; "up,warning" can still be called."""
    faults = [
        *(["stale"] if instance.liveness != "up" else []),
        *([instance.health] if instance.health != "passing" else []),
        *([instance.mode] if instance.mode != "serving" else []),
    ]
    if instance.routable:
        return Cell(",".join(["up", *faults]), "yellow" if faults else "green")
    return Cell(",".join(faults), "yellow" if instance.health != "critical" and instance.liveness == "up" else "red")


def summary(described: Instance | Description) -> str:
    """What an instance says of itself, on one line."""
    parts = [address(described), ",".join(described.capabilities)]
    parts += [f"{name} {value}" for name, value in (("version", described.version), ("zone", described.zone)) if value]
    if described.weight != 1:
        parts.append(f"weight {described.weight:g}")
    return " ".join(part for part in [*parts, pairs(described.metadata)] if part)


def pairs(metadata: dict[str, str]) -> str:
    """ "a=1,b=2" """
    return ",".join(f"{key}={value}" for key, value in sorted(metadata.items()))
