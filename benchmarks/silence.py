"""From the last heartbeat of a killed instance to its end in another process's cache: out of rotation, then gone.

    python -m benchmarks.silence [--instances 1000] [--killed 50] [--ttl 15] [--json]

Goals: out of every cache's rotation no later than last heartbeat + TTL + 2 s, gone no later than twice the TTL + 2 s.
Prints seconds beyond the TTL and beyond twice the TTL, p50 and the largest, and the number of living
that were touched (must be 0).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from adsum.clients import Directory, connect
from benchmarks.fleet import Fleet
from benchmarks.running import adsumd, report

SERVICE = "fleet"


async def follow(directory: Directory, out: dict[str, float], gone: dict[str, float], killed: int) -> None:
    """Note when each instance leaves the rotation and when it is gone, until all killed ones are."""
    async for change in directory.changes():
        now = time.monotonic()
        if change.after is None:
            gone.setdefault(change.instance.id, now)
        elif not change.after.routable:
            out.setdefault(change.instance.id, now)
        if len(gone) >= killed:
            return


async def measure(instances: int, killed: int, ttl: float) -> dict[str, float]:
    """Run it."""
    out: dict[str, float] = {}
    gone: dict[str, float] = {}
    heartbeat = ttl / 3
    with tempfile.TemporaryDirectory(prefix="adsum-bench-") as folder:
        async with adsumd(Path(folder)) as url, connect(url) as registry:
            await registry.broker.ready(10)
            fleet = Fleet(registry.broker, instances, SERVICE, heartbeat, ttl)
            await fleet.register()
            async with registry.directory(SERVICE) as directory, asyncio.TaskGroup() as tasks:
                beating = tasks.create_task(fleet.beat(round(4 * ttl / heartbeat), heartbeat))
                await asyncio.sleep(1.3 * heartbeat)
                fleet.dead.update(range(0, instances, instances // killed))
                dead = [(fleet.keys[n].id, fleet.beat_at[n]) for n in fleet.dead]
                await asyncio.wait_for(follow(directory, out, gone, len(dead)), timeout=3 * ttl + 10)
                beating.cancel()
    late_out = sorted(out[id] - at - ttl for id, at in dead)
    late_gone = sorted(gone[id] - at - 2 * ttl for id, at in dead)
    return {
        "instances": instances,
        "killed": len(dead),
        "ttl_s": ttl,
        "out_after_ttl_p50_s": statistics.median(late_out),
        "out_after_ttl_max_s": late_out[-1],
        "gone_after_two_ttl_p50_s": statistics.median(late_gone),
        "gone_after_two_ttl_max_s": late_gone[-1],
        "living_touched": len((out.keys() | gone.keys()) - {id for id, _ in dead}),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--killed", type=int, default=50)
    parser.add_argument("--ttl", type=float, default=15)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    report(measure(given.instances, given.killed, given.ttl), given.json)


if __name__ == "__main__":
    main()
