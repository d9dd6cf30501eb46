"""Whether somebody accepts connections at a port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

__all__ = ["accepts", "opened"]

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


async def opened(hosts: Callable[[], Iterable[str]], port: int) -> str:
    """Wait until one of `hosts()` accepts connections at `port`; which one."""
    pause = FIRST_PAUSE
    while (host := await accepts(hosts(), port)) is None:
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return host
