"""Everything on the bus that is not in the log: heartbeats, ticks, topology messages and marks."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from .description import Endpoint
from .lifecycle import Health, Mode
from .names import Key

__all__ = [
    "Departed",
    "Heartbeat",
    "Instance",
    "Liveness",
    "NamespaceMark",
    "Report",
    "ServiceMark",
    "Tick",
    "Topology",
    "Trouble",
]

Liveness: TypeAlias = Literal["up", "stale"]


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """Still here: a counter that grows within the term (the term is in the subject); at most what a database holds."""

    counter: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a daemon keeps trying: for `lasted` seconds it has failed with `reason`. `remedy`: what to do."""

    what: str
    reason: str
    lasted: float
    remedy: str


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A caller, the process `by`, found an endpoint of the instance in the subject unreachable, `ago` seconds before.

    `term`: the life that it meant to call; `reason`: what failed. It proves nothing: it has the endpoint probed.
    """

    by: str
    term: str
    endpoint: str
    reason: str = ""
    ago: float = 0.0


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's lease, renewed about once a second, and what it last knew of itself.

    `revision` is the log sequence up to which it folded, `announced` up to which it told; `held` names services
    ("namespace/service") whose mass expiry its guard holds back, at most the first 20. `rejected` counts what was set
    aside of the log; `troubles` are those that last, also of the daemon that gives the lease back. `reports` and
    `probes` count what it was told of peers that cannot be reached, and how often it looked, since it began to lead;
    `unreachable` how many are critical by that now.
    """

    leader: str
    number: Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
    revision: int = 0
    announced: int = 0
    held: tuple[str, ...] = ()
    rejected: int = 0
    troubles: tuple[Trouble, ...] = ()
    reports: int = 0
    probes: int = 0
    unreachable: int = 0


class Instance(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="present", gc=False):
    """An instance as the catalog knows it at `revision`: the topology message, and what a cache hands out."""

    epoch: str
    revision: int
    namespace: str
    service: str
    id: str
    term: str
    endpoints: tuple[Endpoint, ...]
    capabilities: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    version: str = ""
    zone: str = ""
    weight: float = 1.0
    heartbeat: float
    ttl: float
    liveness: Liveness = "up"
    health: Health = "passing"
    mode: Mode = "serving"
    reason: str = ""
    registered_at: float = 0.0
    """Seconds since 1970 by the broker's clock when the term began; to be shown, never compared."""

    @property
    def key(self) -> Key:
        """What names it."""
        return Key(self.namespace, self.service, self.id)

    @property
    def routable(self) -> bool:
        """Up, not critical, serving: fit to be called."""
        return self.liveness == "up" and self.health != "critical" and self.mode == "serving"

    @property
    def endpoint(self) -> Endpoint:
        """The first endpoint; the only one for most."""
        return self.endpoints[0]


class Departed(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="departed", gc=False):
    """The tombstone of an instance: the life `term` ended at `revision`. `reason` is the type of the event."""

    epoch: str
    revision: int
    namespace: str
    service: str
    id: str
    term: str
    reason: str = ""

    @property
    def key(self) -> Key:
        """What names it."""
        return Key(self.namespace, self.service, self.id)


Topology: TypeAlias = Instance | Departed


class ServiceMark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a complete cache of this service holds: how many instances, and their digest (see `digest`).

    `revision` is the highest told of the service, tombstones included: who heard of less may have missed some.
    """

    epoch: str
    round: int
    revision: int
    count: int
    digest: str


class NamespaceMark(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Ends a round of marks of one namespace: a service that had no mark of the same `round` is empty.

    `revision` is the highest told of the namespace.
    """

    epoch: str
    round: int
    revision: int
