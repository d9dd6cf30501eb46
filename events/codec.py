"""Encoding: JSON by msgspec, so that an auditor reads the log with any tool.

One decoder a kind of message. Unknown fields are ignored; what cannot be read raises Undecodable with the reason.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from .errors import Undecodable
from .lifecycle import Event
from .signals import Heartbeat, NamespaceMark, Report, ServiceMark, Tick, Topology

__all__ = [
    "decode_event",
    "decode_heartbeat",
    "decode_namespace_mark",
    "decode_report",
    "decode_service_mark",
    "decode_tick",
    "decode_topology",
    "encode",
]

T = TypeVar("T")

_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")  # an escaped NUL, not a backslash before "u0000"
_encoder = msgspec.json.Encoder()
_events: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_topology: msgspec.json.Decoder[Topology] = msgspec.json.Decoder(Topology)
_heartbeats = msgspec.json.Decoder(Heartbeat)
_reports = msgspec.json.Decoder(Report)
_ticks = msgspec.json.Decoder(Tick)
_service_marks = msgspec.json.Decoder(ServiceMark)
_namespace_marks = msgspec.json.Decoder(NamespaceMark)


def encode(message: Event | Topology | Heartbeat | Tick | ServiceMark | NamespaceMark | Report) -> bytes:
    """The bytes of a message as they go on the bus."""
    return _encoder.encode(message)


def decode_event(data: bytes) -> Event:
    """A lifecycle event. NUL anywhere in it is refused here, since no database of ours could keep it."""
    if b"\\u0000" in data and _NUL.search(data):
        raise Undecodable("text with NUL")
    return _decode(_events, data)


def decode_topology(data: bytes) -> Topology:
    """The state or the tombstone of an instance."""
    return _decode(_topology, data)


def decode_heartbeat(data: bytes) -> Heartbeat:
    """A heartbeat."""
    return _decode(_heartbeats, data)


def decode_tick(data: bytes) -> Tick:
    """A tick of the leader."""
    return _decode(_ticks, data)


def decode_report(data: bytes) -> Report:
    """A caller's report."""
    return _decode(_reports, data)


def decode_service_mark(data: bytes) -> ServiceMark:
    """The mark of a service."""
    return _decode(_service_marks, data)


def decode_namespace_mark(data: bytes) -> NamespaceMark:
    """The mark of a namespace."""
    return _decode(_namespace_marks, data)


def _decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # the last: nested a thousand deep
        raise Undecodable(str(error)) from error
