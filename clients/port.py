"""Whether somebody accepts connections at a port."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable

__all__ = ["LOCAL", "accepts", "is_here", "opened", "stays_open"]

LOCAL = ("127.0.0.1", "::1")
"""Where a server of this machine may listen, if nowhere else."""
CONNECT_LIMIT = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.25


async def accepts(hosts: Iterable[str], port: int) -> str | None:
    """The first of `hosts` that accepts a TCP connection at `port`, None if none does."""
    for host in hosts:
        try:
            async with asyncio.timeout(CONNECT_LIMIT):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, UnicodeError):  # the latter: a host name that IDNA cannot encode
            continue
        writer.close()
        return host
    return None


async def stays_open(hosts: Iterable[str], port: int, seconds: float) -> str | None:
    """The host at which the port still accepts connections after `seconds`; None as soon as none does."""
    hosts = list(hosts)
    for _ in range(round(seconds / LONGEST_PAUSE)):
        if await accepts(hosts, port) is None:
            return None
        await asyncio.sleep(LONGEST_PAUSE)
    return await accepts(hosts, port)


async def is_here(host: str) -> bool:
    """Whether `host` is an address of this machine, so that a program of this machine can listen there."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(_can_bind(family, address) for family, _, _, _, address in found)


def _can_bind(family: int, address: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


async def opened(hosts: Callable[[], Iterable[str]], port: int) -> str:
    """Wait until one of `hosts()` accepts connections at `port`; which one."""
    pause = FIRST_PAUSE
    while (host := await accepts(hosts(), port)) is None:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return host
