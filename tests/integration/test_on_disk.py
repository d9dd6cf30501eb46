"""An event is on disk when it is acknowledged, as the calls show that the broker makes of the system."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.streams import ensure_streams
from adsum.events.together import SharedLog
from adsum.projector.embedded import EmbeddedBroker
from tests.making import key, registered
from tests.servers import Server

TRACED = ("--trace=fsync,fdatasync,pwrite64,write,writev", "--decode-fds=path", "--string-limit=200", "--follow-forks")
LOG = "/ADSUM_EVENTS/msgs/"
THREAD = re.compile(r"(\d+) +")


@asynccontextmanager
async def traced(pid: int, into: Path) -> AsyncIterator[None]:
    """Write down what a process asks of the system meanwhile; skips the test where that is not allowed."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    process = await asyncio.create_subprocess_exec(
        strace, *TRACED, "--output", str(into), "--attach", str(pid), stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    told = (await asyncio.wait_for(process.stderr.readline(), 10)).decode()
    if "attached" not in told:
        await process.wait()
        pytest.skip(f"strace may not attach: {told}")
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 30)


def whole_calls(trace: str) -> Iterator[tuple[int, int, str]]:
    """(the line where it began, the line where it was over, the call), in the order in which they were over."""
    begun: dict[str, tuple[int, str]] = {}
    for at, line in enumerate(trace.splitlines()):
        thread = THREAD.match(line)
        if thread is None:
            continue
        if "<unfinished ...>" in line:
            begun[thread[1]] = at, line
        elif " resumed>" in line:
            began, call = begun.pop(thread[1], (at, ""))
            yield began, at, call
        else:
            yield at, at, line


def on_disk_before_told(trace: str, sequence: int) -> bool:
    """Whether the log was flushed, after all was written that came up to `sequence`, before that was acknowledged."""
    calls = list(whole_calls(trace))
    [told] = [began for began, _, call in calls if rf"\"seq\":{sequence}" in call and "<socket:" in call]
    written = max(over for began, over, call in calls if "pwrite64(" in call and LOG in call and began < told)
    return any("sync(" in call and LOG in call and written < began and over < told for began, over, call in calls)


async def trace_of_saying(url: str, pid: int, folder: Path, count: int) -> str:
    """What the broker does while so many events are said together."""
    bus = Broker.open(BrokerSettings(url=url), "test")
    try:
        await bus.ready(10)
        await ensure_streams(bus)
        async with traced(pid, folder / "trace"):
            shared = SharedLog(bus)
            saying = (shared.say(key(f"i-{n}"), registered(), 0) for n in range(count))
            assert sorted(await asyncio.gather(*saying)) == list(range(1, count + 1))
        return (folder / "trace").read_text(errors="replace")
    finally:
        await bus.close()


@pytest.mark.parametrize("count", [1, 700])
async def test_what_is_acknowledged_is_on_disk(tmp_path: Path, nats: EmbeddedBroker, count: int) -> None:
    """One event as well as a whole batch."""
    assert on_disk_before_told(await trace_of_saying(nats.url, nats.pid, tmp_path, count), count)


async def test_what_a_broker_that_flushes_late_acknowledges_is_not(tmp_path: Path) -> None:
    """So the trace can tell."""
    server = await Server(tmp_path / "server").start()
    try:
        assert not on_disk_before_told(await trace_of_saying(server.url, server.pid, tmp_path, 700), 700)
    finally:
        await server.stop()
