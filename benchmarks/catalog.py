"""How long the catalog takes, on SQLite and on PostgreSQL (from the wheel, with its default settings).

    python -m benchmarks.catalog [sqlite] [postgres] [--records N]

Prints the median and the 95th percentile of each operation in milliseconds. `store` is what the writer calls: rows
of a folded batch, one transaction, committed. The first lines are taken in an almost empty catalog, the second ones
above N records.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from adsum.events.ids import new_id
from adsum.projector.catalog import Catalog, Heard, Observations
from adsum.projector.databases import open_catalog
from tests.catalog.story import EPOCH, Story, key
from tests.databases import PostgresServer

BATCH = 500


async def timed(told: str, rounds: int, prepare: Callable[[], Callable[[], Awaitable[object]]]) -> None:
    """Time an operation `rounds` times; `prepare` makes it ready outside the clock."""
    taken = []
    for _ in range(rounds):
        operation = prepare()
        began = time.perf_counter()
        await operation()
        taken.append((time.perf_counter() - began) * 1000)
    taken.sort()
    print(f"  {told:48} {statistics.median(taken):9.2f} {taken[int(len(taken) * 0.95)]:9.2f}")


async def stores(catalog: Catalog, story: Story, above: str) -> None:
    """Batches of registrations, updates and departures, and batches of one."""
    numbers = iter(range(10_000_000))
    live: list[int] = []

    def batch(make: Callable[[int], object], size: int, chosen: list[int]) -> Callable[[], Awaitable[object]]:
        folded = story.batch([make(number) for number in chosen[:size]])  # type: ignore[misc]  # a message each

        async def store() -> None:
            expected = await catalog.checkpoint()
            assert expected is not None
            await catalog.store(expected, folded)

        return store

    def registrations(size: int) -> Callable[[], Awaitable[object]]:
        fresh = [next(numbers) for _ in range(size)]
        live.extend(fresh)
        return batch(lambda number: story.register(key(number, f"{above}-{number % 50}")), size, fresh)

    def lapses(size: int) -> Callable[[], Awaitable[object]]:
        return batch(lambda number: story.lapse(key(number, f"{above}-{number % 50}")), size, live[-size:])

    def departures(size: int) -> Callable[[], Awaitable[object]]:
        gone = [live.pop() for _ in range(size)]
        return batch(lambda number: story.leave(key(number, f"{above}-{number % 50}")), size, gone)

    await timed(f"store {BATCH} registrations", 20, lambda: registrations(BATCH))
    await timed(f"store {BATCH} lapses", 2, lambda: lapses(BATCH))
    await timed(f"store {BATCH} departures", 10, lambda: departures(BATCH))
    await timed("store 1 registration", 200, lambda: registrations(1))
    await timed("store 1 departure", 100, lambda: departures(1))


async def rest(catalog: Catalog, story: Story) -> None:
    """What is read at the start, and what the reaper writes."""
    generation = await catalog.take()
    terms = [new_id() for _ in range(10_000)]
    counters = iter(range(1000))

    def observe(count: int) -> Callable[[], Awaitable[object]]:
        counter = next(counters)
        heard = [Heard(term, counter, counter * 5.0) for term in terms[:count]]
        return lambda: catalog.observe(generation, Observations(counter * 5.0, heard, (), (), 1))

    await timed("observe 10,000 lives", 10, lambda: observe(10_000))
    await timed("observe 100 lives", 20, lambda: observe(100))
    await timed(f"records() of {len(story.records):,}", 3, lambda: catalog.records)
    await timed("observed() of 10,000 lives", 3, lambda: catalog.observed)
    ids = list(story.terms.values())[:1000]
    await timed("folded() of 1,000 ids", 10, lambda: lambda: catalog.folded(ids))
    keys = list(story.terms)[:1000]
    await timed("departures() of 1,000 keys", 10, lambda: lambda: catalog.departures(keys))


async def measure(dsn: str, records: int) -> None:
    """Everything, on one database."""
    catalog, story = open_catalog(dsn), Story()
    await catalog.open()
    try:
        await catalog.begin(EPOCH)
        await stores(catalog, story, "few")
        for first in range(0, records, 1000):
            await story.tell(catalog, *(story.register(key(n, f"s-{n % 50}")) for n in range(first, first + 1000)))
        print(f"  above {len(story.records):,} records:")
        gc.freeze()
        await stores(catalog, story, "many")
        await rest(catalog, story)
    finally:
        await catalog.close()


def main() -> None:
    """Run what the command line names; both if it names none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--records", type=int, default=100_000)
    asked = parser.parse_args()
    print(f"{'':50} {'median':>9} {'p95':>9} ms")
    if "sqlite" in asked.databases:
        print("SQLite")
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(measure(f"sqlite:///{Path(folder) / 'catalog.db'}", asked.records))
    if "postgres" in asked.databases:
        print("PostgreSQL")
        server = PostgresServer()
        try:
            asyncio.run(measure(server.dsn(), asked.records))
        finally:
            server.close()


if __name__ == "__main__":
    main()
