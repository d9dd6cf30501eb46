"""The lifecycle events: what is said of one life of one instance, in the past tense. They are the log.

The instance itself is named by the subject (`subjects.event`), not repeated in the payload. Every event carries its
own id (also its `Nats-Msg-Id`), the term it speaks of and who said it. New fields have defaults; none is retyped.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from .description import Description

__all__ = [
    "Author",
    "Deregistered",
    "Event",
    "Expired",
    "Health",
    "HealthChanged",
    "Lapsed",
    "Mode",
    "ModeChanged",
    "Probed",
    "Registered",
    "Resumed",
    "Silence",
    "Updated",
]

Health: TypeAlias = Literal["passing", "warning", "critical"]
Mode: TypeAlias = Literal["serving", "draining", "maintenance"]


class Author(msgspec.Struct, frozen=True, gc=False):
    """Who said it: `kind` is "owner" (the instance itself), "operator" (a person or a tool), "reaper" or "prober"."""

    kind: str
    name: str = ""


class Silence(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reaper's evidence: the last counter it heard of the term, and for how long nothing newer (seconds of
    its observed clock), against the instance's TTL (seconds)."""

    counter: int
    silent: float
    ttl: float


class Probed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A prober's evidence: what it tried at the endpoint of this name, what it found, how many callers had reported it.

    `health` and `reason` are what stood before its `critical`; they come back when it takes that back.
    """

    endpoint: str
    tried: str
    found: str
    callers: int = 0
    health: Health = "passing"
    reason: str = ""


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", gc=False):
    id: str
    term: str
    by: Author


class Registered(_Event, frozen=True, kw_only=True, tag="registered"):
    """An instance began a life. `term` is this event's own id."""

    instance: Description
    health: Health = "passing"
    mode: Mode = "serving"


class Updated(_Event, frozen=True, kw_only=True, tag="updated"):
    """The instance describes itself anew; the whole description, not a difference."""

    instance: Description


class HealthChanged(_Event, frozen=True, kw_only=True, tag="health-changed"):
    """What the instance says of its own health, or what a prober found, with its evidence."""

    health: Health
    reason: str = ""
    evidence: Probed | None = None


class ModeChanged(_Event, frozen=True, kw_only=True, tag="mode-changed"):
    """Serving, draining before it goes, or in maintenance."""

    mode: Mode
    reason: str = ""


class Lapsed(_Event, frozen=True, kw_only=True, tag="lapsed"):
    """The heartbeat gap passed the TTL: the instance is stale."""

    evidence: Silence


class Resumed(_Event, frozen=True, kw_only=True, tag="resumed"):
    """A stale instance was heard again."""

    evidence: Silence


class Expired(_Event, frozen=True, kw_only=True, tag="expired"):
    """The heartbeat gap passed twice the TTL: this life is over."""

    evidence: Silence


class Deregistered(_Event, frozen=True, kw_only=True, tag="deregistered"):
    """The owner said goodbye, or an operator removed it (the owner then stays away)."""

    reason: str = ""


Event: TypeAlias = Registered | Updated | HealthChanged | ModeChanged | Lapsed | Resumed | Expired | Deregistered
