"""Waiting for a condition with a deadline, and telling what was seen when it is missed."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(look: Callable[[], T | Awaitable[T]], wanted: Callable[[T], bool] = bool, seconds: float = 10.0) -> T:
    """What `look` gives as soon as `wanted` holds of it; fails with the last thing seen after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        seen: T = await found if inspect.isawaitable(found) else found
        if wanted(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s; last seen: {seen!r}")
        await asyncio.sleep(0.02)
