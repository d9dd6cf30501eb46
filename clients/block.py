"""The tasks behind an `async with` block of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["start", "tasks_of_block"]


@asynccontextmanager
async def tasks_of_block() -> AsyncIterator[asyncio.TaskGroup]:
    """A TaskGroup, except that an error of the block itself comes out as it is and not wrapped in a group.

    A task that dies of a bug still ends the block, and comes out as an ExceptionGroup; also where the block is
    cancelled at the same moment, for Python tells only one of the two. Nothing here keeps a cancellation from its task.
    """
    own: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001  # raised again below, outside of the group
            own = error
    if own is not None:
        raise own


def start(tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None] | None:
    """One more task; None where the block is ending because another task died of a bug."""
    try:
        return tasks.create_task(work, name=name)
    except RuntimeError:
        work.close()
        return None
