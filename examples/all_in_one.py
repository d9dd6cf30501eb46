"""Everything in one process: broker, projector and one of each role of a configuration file.

    python examples/all_in_one.py examples/roles.toml

It keeps its data in `.adsum` and listens at 127.0.0.1:4222, so others may join from outside (see one_role.py). Another
folder and another place to listen may follow:

    python examples/all_in_one.py examples/roles.toml /tmp/adsum 127.0.0.1:4333
"""

from __future__ import annotations

import asyncio
import sys

from one_role import run, stopped

from adsum.projector.inside import adsumd

PORT = 50051
"""Of the first role; nobody listens there in this example."""


async def main(path: str, data: str = ".adsum", listen: str = "127.0.0.1:4222") -> None:
    """The roles join the adsumd around them as they would join any other."""
    stop = stopped()
    async with adsumd(path, data=data, listen=listen) as config, asyncio.TaskGroup() as roles:
        for port, role in enumerate(config.roles, start=PORT):
            roles.create_task(run(config, role, f"127.0.0.1:{port}", stop))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
