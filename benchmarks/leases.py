"""What a lease costs that its owner renews by hand.

    python -m benchmarks.leases [--leases 1000] [--rounds 10] [--json]

A broker of its own. Milliseconds of one `register` and of one `renew`, one after the other (of these the median and
the 99th percentile), and renewals a second when all leases are renewed at once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import tempfile
import time
from pathlib import Path

from adsum.clients import connect
from adsum.events.streams import ensure_streams
from adsum.projector.embedded import EmbeddedBroker
from benchmarks.running import report


async def measure(many: int, rounds: int) -> dict[str, float]:
    """The figures."""
    with tempfile.TemporaryDirectory() as folder:
        server = await EmbeddedBroker.start(Path(folder), port=0)
        try:
            async with connect(server.url) as registry:
                await registry.broker.ready(10)
                await ensure_streams(registry.broker)
                leases = registry.leases(timeout=60)
                first = await leases.register("orders", "127.0.0.1:8080")
                began = time.perf_counter()
                held = [await leases.register("orders", "127.0.0.1:8080") for _ in range(many)]
                registered = time.perf_counter() - began
                single = []
                for _ in range(1000):
                    began = time.perf_counter()
                    await leases.renew(first)
                    single.append(time.perf_counter() - began)
                began = time.perf_counter()
                for _ in range(rounds):
                    await asyncio.gather(*map(leases.renew, held))
                together = time.perf_counter() - began
        finally:
            await server.stop()
    return {
        "register_ms": 1000 * registered / many,
        "renew_ms": 1000 * statistics.median(single),
        "renew_p99_ms": 1000 * statistics.quantiles(single, n=100)[98],
        "renewals_a_second": rounds * many / together,
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leases", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.disable()
    report(measure(given.leases, given.rounds), given.json)


if __name__ == "__main__":
    main()
