"""Every subject that adsum uses, built and taken apart here and nowhere else.

    adsum.v1.<namespace>.event.<service>.<instance>        lifecycle event
    adsum.v1.<namespace>.beat.<service>.<instance>.<term>  heartbeat
    adsum.v1.<namespace>.topology.<service>.<instance>     state after a change
    adsum.v1.<namespace>.change.<service>.<instance>       the same, republished by the broker once stored
    adsum.v1.<namespace>.mark                              ends a round of marks
    adsum.v1.<namespace>.mark.<service>                    what a complete cache of the service holds
    adsum.v1.<namespace>.report.<service>.<instance>       a caller could not reach it
    adsum.v1.<namespace>.ask.<endpoint>                    a question about the past (see questions)
    adsum.tick                                             the leader's tick

The namespace comes before the kind and the service before the instance, so that the broker's own permissions can
say who may speak for what. Names are checked by `names`; "*" stands for any in the filters. A question about all
namespaces is asked in "_all", which is the name of none.
"""

from __future__ import annotations

from .errors import Undecodable
from .names import Key

__all__ = [
    "ALL_BEATS",
    "ALL_EVENTS",
    "ALL_REPORTS",
    "ALL_TOPOLOGY",
    "REPUBLISH_FROM",
    "REPUBLISH_TO",
    "TICK",
    "ask",
    "asks",
    "beat",
    "beat_term",
    "change",
    "changes",
    "event",
    "events",
    "key_of",
    "namespace_mark",
    "namespace_of_ask",
    "report",
    "service_mark",
    "service_of_mark",
    "topologies",
    "topology",
]

_ROOT = "adsum.v1"
_TOKENS = {"event": 6, "beat": 7, "topology": 6, "change": 6, "report": 6}
_EVERY_NAMESPACE = "_all"
TICK = "adsum.tick"
ALL_EVENTS = f"{_ROOT}.*.event.*.*"
ALL_BEATS = f"{_ROOT}.*.beat.*.*.*"
ALL_REPORTS = f"{_ROOT}.*.report.*.*"
ALL_TOPOLOGY = f"{_ROOT}.*.topology.*.*"
REPUBLISH_FROM = ALL_TOPOLOGY
REPUBLISH_TO = f"{_ROOT}.{{{{wildcard(1)}}}}.change.{{{{wildcard(2)}}}}.{{{{wildcard(3)}}}}"


def event(key: Key) -> str:
    """Where lifecycle events of an instance are said."""
    return f"{_ROOT}.{key.namespace}.event.{key.service}.{key.id}"


def events(namespace: str = "*", service: str = "*", id: str = "*") -> str:
    """A filter for lifecycle events."""
    return f"{_ROOT}.{namespace}.event.{service}.{id}"


def beat(key: Key, term: str) -> str:
    """Where one life's heartbeats are said."""
    return f"{_ROOT}.{key.namespace}.beat.{key.service}.{key.id}.{term}"


def beat_term(subject: str) -> str:
    """The term in the subject of a heartbeat."""
    return subject[subject.rfind(".") + 1 :]


def topology(key: Key) -> str:
    """Where the projector writes the state of an instance."""
    return f"{_ROOT}.{key.namespace}.topology.{key.service}.{key.id}"


def topologies(namespace: str = "*", service: str = "*") -> str:
    """A filter for the states of a service."""
    return f"{_ROOT}.{namespace}.topology.{service}.*"


def change(key: Key) -> str:
    """Where the broker tells of changes of one instance."""
    return f"{_ROOT}.{key.namespace}.change.{key.service}.{key.id}"


def changes(namespace: str = "*", service: str = "*") -> str:
    """A filter for the changes of a service."""
    return f"{_ROOT}.{namespace}.change.{service}.*"


def report(key: Key) -> str:
    """Where callers say that they could not reach an instance."""
    return f"{_ROOT}.{key.namespace}.report.{key.service}.{key.id}"


def namespace_mark(namespace: str) -> str:
    """Where a round of marks ends."""
    return f"{_ROOT}.{namespace}.mark"


def service_mark(namespace: str, service: str = "*") -> str:
    """Where the mark of a service is said."""
    return f"{_ROOT}.{namespace}.mark.{service}"


def key_of(subject: str) -> Key:
    """The instance that an event, beat, topology, change or report subject names. Raises Undecodable for any other."""
    tokens = subject.split(".")
    if len(tokens) < 6 or tokens[0] != "adsum" or tokens[1] != "v1" or _TOKENS.get(tokens[3]) != len(tokens):
        raise Undecodable(f"subject {subject!r} names no instance")
    return Key(tokens[2], tokens[4], tokens[5])


def service_of_mark(subject: str) -> str:
    """The service that the subject of a service mark names."""
    return subject[subject.rfind(".") + 1 :]


def ask(endpoint: str, namespace: str = "") -> str:
    """Where questions of a kind are asked about a namespace; without one, about all of them."""
    return f"{_ROOT}.{namespace or _EVERY_NAMESPACE}.ask.{endpoint}"


def asks(endpoint: str = "*") -> str:
    """A filter for the questions of a kind."""
    return f"{_ROOT}.*.ask.{endpoint}"


def namespace_of_ask(subject: str) -> str:
    """The namespace that the subject of a question names; empty: all of them."""
    namespace = subject.split(".")[2]
    return "" if namespace == _EVERY_NAMESPACE else namespace
