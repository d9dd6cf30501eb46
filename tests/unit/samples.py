"""One message of every type, with every field set: what the golden files hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from adsum.events import codec
from adsum.events.description import Description, Endpoint
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Expired,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Probed,
    Registered,
    Resumed,
    Silence,
    Updated,
)
from adsum.events.signals import Departed, Heartbeat, Instance, NamespaceMark, Report, ServiceMark, Tick, Trouble

TERM = "01970000-0000-7000-8000-000000000001"
NEXT = "01970000-0000-7000-8000-000000000002"
EPOCH = "01960000-0000-7000-8000-000000000000"

ENDPOINTS = (
    Endpoint(name="main", host="10.0.0.7", port=8080, protocol="http"),
    Endpoint(name="admin", host="2001:db8::7", port=9090, protocol="grpc"),
)
DESCRIPTION = Description(
    endpoints=ENDPOINTS,
    capabilities=("Payments", "refunds.v2"),
    metadata={"team": "billing", "ort": "Zürich"},
    version="1.4.2",
    zone="eu-west-1a",
    weight=2.5,
    heartbeat=5.0,
    ttl=15.0,
)
OWNER = Author("owner", "adsum.clients")
OPERATOR = Author("operator", "ops@example")
REAPER = Author("reaper", "adsumd-1")
PROBER = Author("prober", "adsumd-1")
PROBED = Probed(
    endpoint="admin",
    tried="connect to [2001:db8::7]:9090",
    found="connection refused",
    callers=3,
    health="warning",
    reason="disk full",
)
SILENCE = Silence(counter=41, silent=15.25, ttl=15.0)


class Sample(NamedTuple):
    """A message and what reads its bytes."""

    message: Any
    decode: Callable[[bytes], Any]


EVENTS = {
    "registered": Registered(id=TERM, term=TERM, by=OWNER, instance=DESCRIPTION, health="warning", mode="maintenance"),
    "updated": Updated(id=NEXT, term=TERM, by=OWNER, instance=DESCRIPTION),
    "health-changed-2": HealthChanged(
        id=NEXT, term=TERM, by=PROBER, health="critical", reason="unreachable", evidence=PROBED
    ),
    "mode-changed": ModeChanged(id=NEXT, term=TERM, by=OPERATOR, mode="draining", reason="new version"),
    "lapsed": Lapsed(id=NEXT, term=TERM, by=REAPER, evidence=SILENCE),
    "resumed": Resumed(id=NEXT, term=TERM, by=REAPER, evidence=SILENCE),
    "expired": Expired(id=NEXT, term=TERM, by=REAPER, evidence=SILENCE),
    "deregistered": Deregistered(id=NEXT, term=TERM, by=OPERATOR, reason="moved"),
}
PRESENT = Instance(
    epoch=EPOCH,
    revision=17,
    namespace="default",
    service="orders",
    id="orders-1",
    term=TERM,
    endpoints=ENDPOINTS,
    capabilities=DESCRIPTION.capabilities,
    metadata=DESCRIPTION.metadata,
    version=DESCRIPTION.version,
    zone=DESCRIPTION.zone,
    weight=DESCRIPTION.weight,
    heartbeat=5.0,
    ttl=15.0,
    liveness="stale",
    health="warning",
    mode="draining",
    reason="disk full",
    registered_at=1700000000.25,
)
DEPARTED = Departed(
    epoch=EPOCH, revision=18, namespace="default", service="orders", id="orders-1", term=TERM, reason="expired"
)
TROUBLE = Trouble(what="catalog x", reason="refused", lasted=2.5, remedy="start it")

SAMPLES = {name: Sample(event, codec.decode_event) for name, event in EVENTS.items()} | {
    "present": Sample(PRESENT, codec.decode_topology),
    "departed": Sample(DEPARTED, codec.decode_topology),
    "heartbeat": Sample(Heartbeat(42), codec.decode_heartbeat),
    "report": Sample(
        Report(by="web-1/4711", term=TERM, endpoint="admin", reason="connect timed out", ago=0.25), codec.decode_report
    ),
    "tick-3": Sample(
        Tick(
            leader="adsumd-1",
            number=7,
            revision=17,
            announced=16,
            held=("default/orders",),
            rejected=3,
            troubles=(TROUBLE,),
            reports=11,
            probes=5,
            unreachable=2,
        ),
        codec.decode_tick,
    ),
    "service-mark": Sample(
        ServiceMark(epoch=EPOCH, round=3, revision=17, count=2, digest="00000000000000000000000000000abc"),
        codec.decode_service_mark,
    ),
    "namespace-mark": Sample(NamespaceMark(epoch=EPOCH, round=3, revision=17), codec.decode_namespace_mark),
}
EARLIER = {
    "health-changed": Sample(
        HealthChanged(id=NEXT, term=TERM, by=OWNER, health="critical", reason="disk full"), codec.decode_event
    ),
    "tick-2": Sample(
        Tick(
            leader="adsumd-1",
            number=7,
            revision=17,
            announced=16,
            held=("default/orders",),
            rejected=3,
            troubles=(TROUBLE,),
        ),
        codec.decode_tick,
    ),
    "tick": Sample(
        Tick(leader="adsumd-1", number=7, revision=17, announced=16, held=("default/orders",)), codec.decode_tick
    ),
}
"""What the golden files of earlier days hold, as it is read today."""
