"""A process that writes down heartbeats, ticks and announcements as the broker stored them; and reading the log whole.

    python -m tests.soak.observer --url URL --record FOLDER

It knows nats-py and nothing of the product: what it hears is what anybody would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from tests.soak.commands import commands
from tests.soak.history import Row
from tests.soak.recording import Recorder

__all__ = ["connected", "last_of_each", "read_log"]

QUIET = 3.0
"""Seconds without a message after which the stream is read from the beginning again: ticks come every second."""


async def connected(url: str) -> Client:
    """A connection that goes on for ever."""

    async def ignore(_: Exception) -> None:
        """What goes wrong is what the soak is about; who waits for an answer sees it."""

    return await nats.connect(
        url.split(","), max_reconnect_attempts=-1, reconnect_time_wait=0.2, ping_interval=2, error_cb=ignore
    )


async def read_stream(client: Client, stream: str, take: Callable[[Msg], None]) -> None:
    """Every message that is stored now. Raises the driver's errors."""
    await _read(client, stream, take, lambda msg: msg.metadata.num_pending == 0)


async def read_log(client: Client) -> list[Row]:
    """The log, whole. Raises the driver's errors."""
    rows: list[Row] = []

    def take(msg: Msg) -> None:
        rows.append(Row(msg.metadata.sequence.stream, _stored(msg), msg.subject, msg.data.decode(errors="replace")))

    await read_stream(client, "ADSUM_EVENTS", take)
    return rows


async def last_of_each(client: Client) -> list[dict[str, Any]]:
    """What the topology holds. Raises the driver's errors."""
    states: list[dict[str, Any]] = []
    await read_stream(client, "ADSUM_TOPOLOGY", lambda msg: states.append(json.loads(msg.data)))
    return states


async def _read(client: Client, stream: str, take: Callable[[Msg], None], enough: Callable[[Msg], bool]) -> None:
    js = client.jetstream(timeout=QUIET)
    if (await js.stream_info(stream)).state.messages == 0:
        return
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, num_replicas=1, mem_storage=True
    )
    subscription = await js.subscribe("", stream=stream, config=config)
    try:
        while True:
            msg = await subscription.next_msg(timeout=QUIET)
            take(msg)
            if enough(msg):
                return
    finally:
        if client.is_connected:
            await subscription.unsubscribe()


def _stored(msg: Msg) -> float:
    return msg.metadata.timestamp.timestamp()


class Observer:
    """Writes down what two streams hold and get."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client, self._recorder = client, recorder
        self._written: set[tuple[object, ...]] = set()

    async def beats(self) -> None:
        """Heartbeats and ticks."""
        await _read(self._client, "ADSUM_BEATS", self._beat, lambda _: False)

    async def announcements(self) -> None:
        """States and tombstones."""
        await _read(self._client, "ADSUM_TOPOLOGY", self._announced, lambda _: False)

    def _beat(self, msg: Msg) -> None:
        told = json.loads(msg.data)
        if msg.subject == "adsum.tick":
            self._write("tick", stored=_stored(msg), leader=told["leader"], number=told["number"])
        else:
            term = msg.subject.rpartition(".")[2]
            self._write("beat", term=term, counter=told["counter"], stored=_stored(msg))

    def _announced(self, msg: Msg) -> None:
        told = json.loads(msg.data)
        key = f"{told['namespace']}/{told['service']}/{told['id']}"
        self._write("announced", key=key, revision=told["revision"], stored=_stored(msg))

    def _write(self, fact: str, **fields: object) -> None:
        """Once, however often it is read."""
        known = fact, *fields.values()
        if known not in self._written:
            self._written.add(known)
            self._recorder.write(fact, **fields)


async def for_ever(reading: Callable[[], Awaitable[None]]) -> None:
    """Read again from the beginning whenever something went wrong."""
    while True:
        try:
            await reading()
        except (TimeoutError, nats.errors.Error):
            await asyncio.sleep(0.2)


async def main(given: argparse.Namespace) -> None:
    """Until it is told to end."""
    recorder = Recorder(given.record, "observer")
    async with commands() as told:
        client = await connected(given.url)
        observer = Observer(client, recorder)
        reading = [asyncio.create_task(for_ever(one)) for one in (observer.beats, observer.announcements)]
        await told.stop.wait()
        for task in reading:
            task.cancel()
        await client.close()


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--record", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(_given()))
