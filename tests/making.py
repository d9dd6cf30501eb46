"""Values for tests: descriptions, records, events, messages."""

from __future__ import annotations

from adsum.events import subjects
from adsum.events.codec import encode
from adsum.events.description import Description, Endpoint, describe
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Event, Registered
from adsum.events.names import Key
from adsum.events.reader import Message
from adsum.projector.record import Record

OWNER = Author("owner")
OPERATOR = Author("operator", "somebody")
REAPER = Author("reaper", "test")


def key(id: str = "a", service: str = "orders", namespace: str = "default") -> Key:
    """A key."""
    return Key(namespace, service, id)


def description(port: int = 8080, heartbeat: float = 5.0, ttl: float = 15.0, **more: object) -> Description:
    """A checked description with one endpoint."""
    return describe([Endpoint(host="127.0.0.1", port=port)], heartbeat=heartbeat, ttl=ttl, **more)  # type: ignore[arg-type]


def registered(said: Description | None = None) -> Registered:
    """The beginning of a life with a term of its own."""
    term = new_id()
    return Registered(id=term, term=term, by=OWNER, instance=said or description())


def record(of: Key | None = None, revision: int = 1, ttl: float = 15.0, **fields: object) -> Record:
    """A live record."""
    defaults: dict[str, object] = {
        "key": of or key(),
        "term": new_id(),
        "revision": revision,
        "last": revision,
        "description": description(heartbeat=ttl / 3, ttl=ttl),
        "registered_at": 1000.0,
        "changed_at": 1000.0,
    }
    return Record(**(defaults | fields))  # type: ignore[arg-type]


def message(event: Event, sequence: int, of: Key | None = None, time: float | None = None) -> Message:
    """An event as it stands in the log."""
    return Message(subjects.event(of or key()), encode(event), sequence, 1000.0 + sequence if time is None else time)
