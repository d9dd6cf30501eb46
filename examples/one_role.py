"""One role in a process of its own. It tells whom it would call, until Ctrl-C or SIGTERM; then it leaves in order.

With an adsumd running (`adsumd`, or examples/all_in_one.py), as many of these as you like:

    python examples/one_role.py examples/roles.toml querier 127.0.0.1:50061
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from adsum.clients import Config, Member, bootstrap, load_config


async def tell(me: Member) -> None:
    """A line for each capability, whenever those who have it differ."""
    told: dict[str, list[str]] = {}
    async for _ in me.directory.changes():
        for capability in sorted({each for role in me.config.roles.values() for each in role.capabilities}):
            found = [f"{one.service} {one.endpoint.address}" for one in me.discover(capability)]
            if told.get(capability, []) != found:
                told[capability] = found
                print(f"{me.role} finds {capability}: {', '.join(found) or 'nobody'}", flush=True)


async def run(config: Config, role: str, address: str, stop: asyncio.Event) -> None:
    """Be one of `role` until told to stop."""
    async with bootstrap(config, role, address=address) as me:
        print(f"{role} joined at {address}", flush=True)
        telling = asyncio.create_task(tell(me))
        await stop.wait()
        await me.drain("stopped")  # nobody picks it any more; here a real one finishes what is in flight
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling
    print(f"{role} left", flush=True)


def stopped() -> asyncio.Event:
    """What is set on Ctrl-C and SIGTERM."""
    stop = asyncio.Event()
    for sent in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(sent, stop.set)
    return stop


async def main(path: str, role: str, address: str) -> None:
    """Run it."""
    await run(load_config(path), role, address, stopped())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
