"""A probe: whether an endpoint answers. By a TCP connect; by an HTTP GET of the path that it declared for that; or by
the health check of gRPC, where that is what it declared.

Who it is that answers is not judged here, nor what it answers as long as that is no fault of a server (in HTTP, 5xx)
and, in gRPC, it serves. What says more of this machine than of the other one (no sockets left, no network, no resolver)
says nothing about the endpoint.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
from functools import cache
from types import ModuleType
from typing import Literal, NamedTuple

from adsum.events.cord import NotConnected
from adsum.events.description import GRPC_HEALTH, Endpoint
from adsum.events.machine import is_of_this_machine

__all__ = ["Outcome", "probe"]

TIMEOUT = 2.0
"""Seconds that an endpoint may take; a first packet that was lost is sent again after one."""
_LONGEST_LINE = 4096
_HTTP, _GRPC = ("http", "https"), ("grpc", "grpcs")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r?\n)")

log = logging.getLogger("adsum.prober")


class Outcome(NamedTuple):
    """Whether it was reached (None: that cannot be told), what was tried, and what was found."""

    reached: bool | None
    tried: str
    found: str


class _Way(NamedTuple):
    """How an endpoint is tried, and how that is told."""

    kind: Literal["connect", "http", "grpc"]
    tried: str


def _way_to(endpoint: Endpoint, path: str) -> _Way:
    """How to try an endpoint that declared `path`."""
    url = f"{endpoint.protocol}://{endpoint.address}{path}"
    if path and endpoint.protocol in _HTTP:
        return _Way("http", f"GET {url}")
    if path == GRPC_HEALTH and endpoint.protocol in _GRPC:
        return _Way("grpc", f"call of {url}")
    return _Way("connect", f"connect to {endpoint.address}")


async def probe(endpoint: Endpoint, path: str, timeout: float = TIMEOUT) -> Outcome:
    """Try an endpoint, at most `timeout` seconds. `path`: ask it there over HTTP or gRPC; "": only connect."""
    way = _way_to(endpoint, path)
    if way.kind == "grpc" and _grpc() is None:
        way = _way_to(endpoint, "")
    try:
        async with asyncio.timeout(timeout):
            if way.kind == "grpc":
                reached, found = await _check(endpoint)
            else:
                reached, found = _judged(way, await _ask(endpoint, path if way.kind == "http" else ""))
    except TimeoutError:
        return Outcome(False, way.tried, f"no answer within {timeout:g} s")
    except (OSError, ValueError, OverflowError) as error:  # the last two: a host or a port that is none
        return Outcome(None if is_of_this_machine(error) else False, way.tried, _told(error))
    return Outcome(reached, way.tried, found)


def _judged(way: _Way, status: int | None) -> tuple[bool, str]:
    if way.kind == "connect":
        return True, "connected"
    return (False, "no answer in HTTP") if status is None else (status < 500, f"status {status}")


@cache
def _grpc() -> ModuleType | None:
    """What speaks gRPC; None, and said once, where grpcio is not installed."""
    try:
        from . import grpc_probe
    except ImportError:
        log.warning(
            "endpoints that declare the health of gRPC are only connected to, as grpcio is not installed here: "
            "pip install 'adsum[grpc]'"
        )
        return None
    return grpc_probe


async def _check(endpoint: Endpoint) -> tuple[bool, str]:
    """The health that a gRPC server tells."""
    tls = _unverified() if endpoint.protocol == "grpcs" else None
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    grpc_probe = _grpc()
    assert grpc_probe is not None
    try:
        found: tuple[bool, str] = await grpc_probe.check(endpoint, tls)
    except NotConnected as error:
        raise error.__cause__ or error from None  # in the system's words
    return found


async def _ask(endpoint: Endpoint, path: str) -> int | None:
    """Connect; with a path, the status of the answer: None if what came is none."""
    tls = _unverified() if path and endpoint.protocol == "https" else None
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=tls, limit=_LONGEST_LINE)
    try:
        if not path:
            return None
        asked = f"GET {path} HTTP/1.1\r\nHost: {endpoint.address}\r\nUser-Agent: adsumd\r\nConnection: close\r\n\r\n"
        writer.write(asked.encode())
        try:
            line = await reader.readline()
        except ValueError:  # longer than any status line
            return None
        answered = _STATUS.match(line)
        return int(answered[1]) if answered else None
    finally:
        writer.transport.abort()  # nothing more is wanted of it, and nothing may be waited for


def _unverified() -> ssl.SSLContext:
    """Whoever answers, answers: whose certificate it shows is for its callers to judge."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _told(error: Exception) -> str:
    """In words that are the same on every machine and for every address."""
    if isinstance(error, socket.gaierror | ssl.SSLError) or not isinstance(error, OSError) or error.errno is None:
        return (str(error) or type(error).__name__)[:200]
    return os.strerror(error.errno).lower()
