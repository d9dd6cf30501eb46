"""Two states of one instance: what is not the same any more, in words and in fields. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from adsum.events.durations import format_duration
from adsum.events.signals import Instance

from .shown import address, condition, pairs

__all__ = ["changes", "differences"]

Spelled: TypeAlias = Callable[[Instance], str]
_OF_THE_MESSAGE = {"type", "epoch", "revision", "registered_at"}
"""Fields that tell when and where the state was told, not what it is."""


def changes(before: Instance, after: Instance) -> dict[str, tuple[Any, Any]]:
    """Every field that is not the same any more: its value before and after. The field `term`: a new life."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    return {name: (old[name], new[name]) for name in old if name not in _OF_THE_MESSAGE and old[name] != new[name]}


def differences(before: Instance, after: Instance) -> Iterator[str]:
    """What is not the same any more, one text each; at least one where `changes` has any."""
    if before.term != after.term:
        yield "a new life"
    if condition(before) != condition(after):
        yield f"{condition(before).text} -> {condition(after).text}"
    for field, label, spelled in _FIELDS:
        if getattr(before, field) != getattr(after, field):
            old, new = _texts(field, spelled, before, after)
            yield f"{label}{old or 'none'} -> {new or 'none'}"
    if after.reason != before.reason:
        yield after.reason or f"no reason any more, was: {before.reason}"


def _texts(field: str, spelled: Spelled, before: Instance, after: Instance) -> tuple[str, str]:
    """The values of a field that differ: as short as they can be told apart."""
    if spelled(before) != spelled(after):
        return spelled(before), spelled(after)
    old, new = (msgspec.json.encode(getattr(instance, field)).decode() for instance in (before, after))
    return old, new


_FIELDS: tuple[tuple[str, str, Spelled], ...] = (
    ("endpoints", "", address),
    ("capabilities", "capabilities ", lambda one: ",".join(one.capabilities)),
    ("version", "version ", lambda one: one.version),
    ("zone", "zone ", lambda one: one.zone),
    ("weight", "weight ", lambda one: f"{one.weight:g}"),
    ("heartbeat", "heartbeat ", lambda one: format_duration(one.heartbeat)),
    ("ttl", "ttl ", lambda one: format_duration(one.ttl)),
    ("metadata", "metadata ", lambda one: pairs(one.metadata)),
)
