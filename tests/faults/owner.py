"""A service as a program: it registers with the real client, and does what it is told on standard input.

owner.py URL CONNECTION REGISTRATION…   CONNECTION: options of `connect` as JSON; REGISTRATION: those of `register`

Each registration needs an id. A JSON line on standard output tells of each change of state or term and of each thing
done; the log goes to standard error. SIGTERM: it leaves its blocks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import AsyncExitStack

from adsum.clients import LifeEnded, Registration, connect

LOOK = 0.02


def tell(**said: object) -> None:
    """A line on standard output."""
    print(json.dumps(said), flush=True)


async def watch(me: Registration) -> None:
    """Tell of each change of what this registration is."""
    told = None
    while True:
        if (seen := (me.state, me.term)) != told:
            told = seen
            tell(id=me.id, state=me.state, term=me.term, pid=os.getpid())
        await asyncio.sleep(LOOK)


async def obey(mine: dict[str, Registration]) -> None:
    """Do what comes on standard input: {"id": …, "do": the name of a method, "with": its arguments}."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        order = json.loads(line)
        try:
            in_log = await getattr(mine[order["id"]], order["do"])(**order["with"])
            tell(id=order["id"], did=order["do"], in_log=in_log)
        except LifeEnded as error:
            tell(id=order["id"], did=order["do"], error=type(error).__name__)


async def main(url: str, connection: str, *registrations: str) -> None:
    """Register, and go on until SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    mine: dict[str, Registration] = {}
    async with connect(url, **json.loads(connection)) as registry, AsyncExitStack() as blocks:
        for registration in registrations:
            me = registry.register(**json.loads(registration))
            mine[me.id] = await blocks.enter_async_context(me)
        tasks = [asyncio.create_task(doing) for doing in (obey(mine), *map(watch, mine.values()))]
        await stopped.wait()
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
