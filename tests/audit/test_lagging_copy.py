"""Reading the log of a cluster from a copy that is behind: its end is not taken for the end of the log."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.errors import AdsumError
from adsum.events.reader import StreamReader
from adsum.events.streams import EVENTS
from tests.audit.test_trim import streams_are_there
from tests.audit.test_trim_apart import follower
from tests.cluster import ELECTIONS, cluster
from tests.making import key
from tests.making import registered as born
from tests.projector.test_daemon import connected
from tests.waiting import until

SAID = 12_000
"""Enough for a copy that was away to be behind for a while."""
TOGETHER = 200
TRIES = 200


@pytest.mark.long
async def test_a_reader_goes_to_the_end_of_the_log_from_whichever_copy(tmp_path: Path) -> None:
    """A server comes back that had been paused while much was said, and readers are opened one after the other, some of
    them on it: each finds all of the last hundred events. An export or a verification of less would be wrong."""
    (tmp_path / "cluster").mkdir()
    async with cluster(tmp_path / "cluster") as nodes:
        bus = await connected(",".join(node.url for node in nodes))
        await until(lambda: streams_are_there(bus, 3), seconds=ELECTIONS)
        paused = nodes[await follower(bus, nodes)]
        paused.signal(signal.SIGSTOP)
        for _ in range(SAID // TOGETHER):
            told = (bus.store(EVENTS, subjects.event(key(f"o-{at}")), encode(born()), {}) for at in range(TOGETHER))
            last = max(await asyncio.gather(*told))
        paused.signal(signal.SIGCONT)
        found: list[int | str] = []
        deadline = time.monotonic() + ELECTIONS
        while len(found) < TRIES and time.monotonic() < deadline:
            try:
                found.append(len(await read(bus, last - 99)))
            except AdsumError as error:  # a server that comes back may be asked too early
                found.append(str(error))
        whole = [count for count in found if count == 100]
        assert [count for count in found if isinstance(count, int) and count != 100] == []
        assert whole, found
        for filters in (["adsum.v1.*.event.orders.o-1"], ["adsum.v1.*.event.orders.nobody"]):
            async with StreamReader(bus, EVENTS, filters, start=last - 199) as reader:
                assert len(await reader.to_end()) == (1 if "o-1" in filters[0] else 0)
        await bus.close()


async def read(bus: Broker, start: int) -> list[int]:
    """The sequences from one on, to the end."""
    found: list[int] = []
    async with StreamReader(bus, EVENTS, start=start) as reader:
        while batch := await reader.to_end():
            found += [message.sequence for message in batch]
    return found
