"""Reading what is heard off the wire, and keeping states small: what most instances share is kept once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from sys import intern
from typing import TypeVar

from msgspec.structs import force_setattr

from adsum.events import subjects
from adsum.events.codec import decode_topology
from adsum.events.errors import Undecodable
from adsum.events.signals import Instance, Topology

__all__ = ["read", "read_state"]

T = TypeVar("T")

_SHARED = ("epoch", "namespace", "service", "version", "zone")
_SHARED_BY_ENDPOINTS = ("name", "protocol")

log = logging.getLogger("adsum.clients")


def read(decode: Callable[[bytes], T], subject: str, data: bytes) -> T | None:
    """What a message says; None, with a line in the log, if it cannot be read."""
    try:
        return decode(data)
    except Undecodable as error:
        log.warning("%s: skipped what cannot be read: %s", subject, error)
        return None


def read_state(subject: str, data: bytes) -> Topology | None:
    """The state or tombstone in a message; None, with a line in the log, if it cannot be read.

    Nor if it came on a subject that is not its own: who may speak where is decided by the subject, and what a consumer
    of somebody else's delivers keeps the subject that it was stored under.
    """
    told = read(decode_topology, subject, data)
    if told is None:
        return None
    key = told.key
    if subject != subjects.topology(key) and subject != subjects.change(key):
        log.warning("%s: skipped what tells of another instance, %s", subject, key)
        return None
    if isinstance(told, Instance):
        for field in _SHARED:
            force_setattr(told, field, intern(getattr(told, field)))
        for endpoint in told.endpoints:
            for field in _SHARED_BY_ENDPOINTS:
                force_setattr(endpoint, field, intern(getattr(endpoint, field)))
    return told
