"""A process with real registrations: it registers, changes what it says, leaves, and comes again with the same id.

    python -m tests.soak.service --url URL --record FOLDER --name service-3 --service orders --count 3 …

Each change has a value of its own, so that the log can be asked for it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from collections.abc import Mapping
from pathlib import Path

from adsum.clients import LifeEnded, Registration, Registry, connect
from adsum.events.broker import Broker
from adsum.events.ids import new_id
from tests.soak.commands import Commands, commands
from tests.soak.recording import Recorder

HEALTHS = ("passing", "warning", "critical")
MODES = ("serving", "draining", "maintenance")
GLANCE = 0.1


class Owner:
    """Owns `count` instances of one service for as long as the process runs."""

    def __init__(self, given: argparse.Namespace, recorder: Recorder, told: Commands, registry: Registry) -> None:
        self._given, self._recorder, self._told, self._registry = given, recorder, told, registry
        self._values = 0

    def value(self) -> str:
        """Another one each time, in all processes of a run."""
        self._values += 1
        return f"{self._given.name}-{os.getpid()}-{self._values}"

    async def live(self, number: int) -> None:
        """One instance: it comes, changes, and in the end or now and then it goes."""
        given = self._given
        id = f"{given.name}-{number}" if given.ids == "fixed" else new_id()
        while not self._told.stop.is_set():
            me = self._registry.register(
                given.service,
                port=8000 + number,
                host="127.0.0.1",
                id=id,
                capabilities=["even"] if number % 2 == 0 else ["odd"],
                metadata={"value": self.value()},
                heartbeat=given.heartbeat,
                ttl=given.ttl,
                wait=8.0,  # longer than an unanswered publish takes to be given up: what is said then is checked too
            )
            key = "/".join(me.key)
            self._recorder.write("registering", key=key)
            async with me:
                showing = asyncio.create_task(self._show(me, key))
                await self._change(me, key)
            await showing
            self._recorder.write("left", key=key)
            await self._told.pause(random.uniform(0, given.ttl / 2))

    async def _change(self, me: Registration, key: str) -> None:
        """Change this and that until it is time to leave."""
        while await self._told.pause(random.uniform(0.2, 1.8) * self._given.pace):
            if not self._told.busy.is_set():
                continue
            if random.random() < 0.04:
                return
            value = self.value()
            try:
                kind, said = await self._change_once(me, value)
            except LifeEnded as end:
                self._recorder.write("ended", key=key, why=str(end))
                await self._told.stop.wait()
                return
            if said:
                self._recorder.write("said", key=key, kind=kind, value=value)

    async def _change_once(self, me: Registration, value: str) -> tuple[str, bool]:
        kind = random.choice(("updated", "updated", "health-changed", "mode-changed"))
        if kind == "updated":
            return kind, await me.update(metadata={"value": value})
        if kind == "health-changed":
            return kind, await me.health(random.choice(HEALTHS), value)
        return kind, await me.mode(random.choice(MODES), value)

    async def _show(self, me: Registration, key: str) -> None:
        """Write down what is wanted said of the instance whenever that is another thing, until the block was left."""
        before: dict[str, str] = {}
        while me.state != "closed":
            standing = me.standing
            shown = {
                "state": me.state,
                "term": me.term,
                "value": standing.description.metadata["value"],
                "health": standing.health,
                "mode": standing.mode,
            }
            if shown != before:
                self._recorder.write("standing", key=key, **shown)
                before = shown
            await asyncio.sleep(GLANCE)
        self._recorder.write("standing", key=key, state="closed")


def record_stored(broker: Broker, recorder: Recorder) -> None:
    """Write down each event that the broker acknowledged, where it was said."""
    store = broker.store

    async def recording(stream: str, subject: str, data: bytes, headers: Mapping[str, str], timeout: float) -> int:
        sequence = await store(stream, subject, data, headers, timeout)
        recorder.write("stored", subject=subject, id=headers["Nats-Msg-Id"], sequence=sequence)
        return sequence

    broker.store = recording  # type: ignore[method-assign]  # the one place where every acknowledgement passes


async def main(given: argparse.Namespace) -> None:
    """Until it is told to end."""
    recorder = Recorder(given.record, given.name)
    recorder.write("started", pid=os.getpid())
    async with commands() as told, connect(given.url, name=given.name, ping=given.heartbeat / 2) as registry:
        record_stored(registry.broker, recorder)
        owner = Owner(given, recorder, told, registry)
        async with asyncio.TaskGroup() as tasks:
            for number in range(given.count):
                tasks.create_task(owner.live(number))


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--service", required=True)
    parser.add_argument("--ids", choices=["fixed", "fresh"], required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--heartbeat", type=float, required=True)
    parser.add_argument("--ttl", type=float, required=True)
    parser.add_argument("--pace", type=float, default=2.0, help="seconds between two changes of an instance, about")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(_given()))
