"""A process with a real directory: it writes down each change, and what the cache shows, as differences.

python -m tests.soak.watcher --url URL --record FOLDER --name watcher-1 [--capability even] [SERVICE …]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
from pathlib import Path

import msgspec

from adsum.clients import Directory, Instance, connect
from tests.soak.commands import Commands, commands
from tests.soak.recording import Recorder

GLANCE = 0.25


class Watcher:
    """Writes down what one directory shows."""

    def __init__(self, directory: Directory, recorder: Recorder) -> None:
        self._directory, self._recorder = directory, recorder
        self._shown: dict[str, Instance] = {}

    async def changes(self) -> None:
        """Each change, and what is shown then."""
        async for change in self._directory.changes():
            before, after = (one.revision if one is not None else None for one in (change.before, change.after))
            self._recorder.write(
                "change", key="/".join(change.instance.key), kind=change.kind, before=before, after=after
            )
            self._look(periodic=False)

    async def views(self, told: Commands) -> None:
        """What is shown, again and again."""
        while await told.pause(GLANCE):
            self._look(periodic=True)

    def _look(self, *, periodic: bool) -> None:
        state, age = self._directory.state, self._directory.age
        here = {} if state == "loading" else {"/".join(one.key): one for one in self._directory.instances()}
        shown = [msgspec.to_builtins(one) for key, one in here.items() if self._shown.get(key) is not one]
        gone = [key for key in self._shown if key not in here]
        self._shown = here
        if periodic or shown or gone:
            told = {name: found for name, found in (("shown", shown), ("gone", gone)) if found}
            self._recorder.write("view", state=state, age=None if age == math.inf else round(age, 3), **told)


async def main(given: argparse.Namespace) -> None:
    """Until it is told to end."""
    recorder = Recorder(given.record, given.name)
    async with commands() as told, connect(given.url, name=given.name) as registry:
        recorder.write("following", services=given.services, capability=given.capability, pid=os.getpid())
        async with (
            registry.directory(*given.services, capability=given.capability, poll_interval=10.0, wait=0) as directory,
            asyncio.TaskGroup() as tasks,
        ):
            watcher = Watcher(directory, recorder)
            following = tasks.create_task(watcher.changes())
            await watcher.views(told)
            following.cancel()


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--capability")
    parser.add_argument("services", nargs="*")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(_given()))
