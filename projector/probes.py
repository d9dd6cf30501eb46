"""A probe: whether an endpoint answers. By a TCP connect, or by an HTTP GET of the path that it declared for that.

Who it is that answers is not judged here, nor what it answers as long as that is no fault of a server (5xx). What says
more of this machine than of the other one (no sockets left, no network, no resolver) says nothing about the endpoint.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
from typing import NamedTuple

from adsum.events.description import Endpoint

__all__ = ["Outcome", "probe"]

TIMEOUT = 2.0
"""Seconds that an endpoint may take; a first packet that was lost is sent again after one."""
_LONGEST_LINE = 4096
_HTTP = ("http", "https")
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r?\n)")
_OURS = {
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOBUFS,
    errno.ENOMEM,
    errno.EADDRNOTAVAIL,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EACCES,
    errno.EPERM,
}


class Outcome(NamedTuple):
    """Whether it was reached (None: that cannot be told), what was tried, and what was found."""

    reached: bool | None
    tried: str
    found: str


async def probe(endpoint: Endpoint, path: str, timeout: float = TIMEOUT) -> Outcome:
    """Try an endpoint, at most `timeout` seconds. `path`: ask it there over HTTP; "": only connect."""
    asks = bool(path) and endpoint.protocol in _HTTP
    tried = f"GET {endpoint.protocol}://{endpoint.address}{path}" if asks else f"connect to {endpoint.address}"
    try:
        async with asyncio.timeout(timeout):
            status = await _ask(endpoint, path if asks else "")
    except TimeoutError:
        return Outcome(False, tried, f"no answer within {timeout:g} s")
    except (OSError, ValueError, OverflowError) as error:  # the last two: a host or a port that is none
        return Outcome(None if _is_ours(error) else False, tried, _told(error))
    if not asks:
        return Outcome(True, tried, "connected")
    if status is None:
        return Outcome(False, tried, "no answer in HTTP")
    return Outcome(status < 500, tried, f"status {status}")


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


def _is_ours(error: Exception) -> bool:
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, ssl.SSLError):  # whose numbers are its own
        return False
    return isinstance(error, OSError) and error.errno in _OURS


def _told(error: Exception) -> str:
    """In words that are the same on every machine and for every address."""
    if isinstance(error, socket.gaierror | ssl.SSLError) or not isinstance(error, OSError) or error.errno is None:
        return (str(error) or type(error).__name__)[:200]
    return os.strerror(error.errno).lower()
