"""10,000 heartbeats a second at 10,000 instances: does the projector keep up, and on how much of a core?

    python -m benchmarks.heartbeats [--instances 10000] [--rate 10000] [--seconds 20] [--json]

Prints the CPU of projector and broker in cores, their CPU seconds per 1,000 heartbeats, how long after the last
heartbeat all of them stood in the catalog (it writes them down every three seconds), and how many false verdicts there
were meanwhile (nothing may be added to the log while everybody beats).
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from adsum.events.broker import Broker
from adsum.events.settings import BrokerSettings
from adsum.events.streams import EVENTS
from benchmarks.fleet import Fleet
from benchmarks.running import report, start

CATCH_UP_LIMIT = 60.0


def cpu(process: psutil.Process) -> float:
    """CPU seconds of a process so far."""
    times = process.cpu_times()
    return times.user + times.system


async def all_heard(catalog: Path, fleet: Fleet) -> float:
    """Seconds from now until the catalog holds the last heartbeat of every instance."""
    began = time.monotonic()
    with sqlite3.connect(f"file:{catalog}?mode=ro", uri=True) as database:
        query = "SELECT count(*) FROM heard WHERE counter = ?"
        while database.execute(query, (fleet.counter,)).fetchone()[0] < len(fleet.keys):
            if time.monotonic() - began > CATCH_UP_LIMIT:
                raise RuntimeError("the projector fell behind")
            await asyncio.sleep(0.05)
    return time.monotonic() - began


async def last_sequence(broker: Broker) -> int:
    """The end of the log."""
    info = await broker.stream_info(EVENTS)
    return info.state.last_seq if info else 0


async def measure(instances: int, rate: float, seconds: float) -> dict[str, float]:
    """Run it."""
    with tempfile.TemporaryDirectory(prefix="adsum-bench-") as folder:
        daemon, url = await start(Path(folder))
        try:
            projector = psutil.Process(daemon.pid)
            [server] = projector.children()
            broker = Broker.open(BrokerSettings(url=url), "fleet")
            await broker.ready(10)
            fleet = Fleet(broker, instances)
            registered = await fleet.register()
            await fleet.beat(2, instances / rate)  # so that start-up is not measured
            said = await last_sequence(broker)
            began, used = time.monotonic(), (cpu(projector), cpu(server))
            late = await fleet.beat(round(rate * seconds / instances), instances / rate)
            lasted = time.monotonic() - began
            spent = cpu(projector) - used[0], cpu(server) - used[1]
            behind = await all_heard(Path(folder) / "data" / "catalog.db", fleet)
            verdicts = await last_sequence(broker) - said
            await broker.close()
        finally:
            daemon.terminate()
            await daemon.wait()
    thousands = rate * lasted / 1000
    return {
        "instances": instances,
        "rate": rate,
        "registered_per_s": instances / registered,
        "projector_cores": spent[0] / lasted,
        "broker_cores": spent[1] / lasted,
        "projector_cpu_s_per_1000": spent[0] / thousands,
        "broker_cpu_s_per_1000": spent[1] / thousands,
        "all_heard_after_s": behind,
        "sender_late_s": late,
        "false_verdicts": verdicts,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    report(measure(given.instances, given.rate, given.seconds), given.json)


if __name__ == "__main__":
    main()
