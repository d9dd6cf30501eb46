"""How long it takes to answer from the catalog who was there at a moment, over a long log.

    python -m benchmarks.past [sqlite] [postgres] [--events N] [--instances N] [--keep FOLDER]

Fills a catalog through the fold and the writer's own transactions: N instances that change and are replaced by others
until N events are logged. Then it asks, page by page, what the service asks for its callers, at early, middle and late
moments, and prints the milliseconds of whole answers (the median of five, and the worst) with the number of pages.
`--keep` leaves the SQLite file there, and takes one that is there already.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from adsum.events.codec import encode
from adsum.events.description import Endpoint, describe
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, HealthChanged, Registered
from adsum.events.names import Key
from adsum.events.questions import MOST_ROWS, EventsAsked, Logged, Moment, VersionsAsked, WorldAsked, continued
from adsum.events.reader import Message
from adsum.projector.catalog import Catalog
from adsum.projector.databases import open_catalog
from adsum.projector.history import History
from tests.catalog.story import EPOCH, OWNER, Story
from tests.databases import PostgresServer

BATCH = 1000
SERVICES = 50
SAID = describe(
    [Endpoint(host="10.0.0.7", port=8080, protocol="http")], capabilities=["payments"], metadata={"pod": "orders-7f"}
)


def told(story: Story, events: int, instances: int) -> Iterator[Message]:
    """A log of so many events: everybody comes, then each step one of them changes, or leaves for another."""
    dice = random.Random(7)
    living: list[tuple[Key, str]] = []
    critical: set[str] = set()

    def begin() -> tuple[Key, str]:
        term = new_id()
        return Key("default", f"service-{dice.randrange(SERVICES)}", term), term

    while story.sequence < events:
        if len(living) < instances:
            key, term = begin()
            living.append((key, term))
            yield story.raw(key, encode(Registered(id=term, term=term, by=OWNER, instance=SAID)))
            continue
        at = dice.randrange(instances)
        key, term = living[at]
        if dice.random() < 0.15:
            living[at] = living[-1]
            living.pop()
            yield story.raw(key, encode(Deregistered(id=new_id(), term=term, by=OWNER)))
        else:
            health = "passing" if term in critical else "critical"
            critical.symmetric_difference_update({term})
            yield story.raw(key, encode(HealthChanged(id=new_id(), term=term, by=OWNER, health=health)))


async def fill(catalog: Catalog, events: int, instances: int) -> None:
    """Log, fold, store."""
    story = Story()
    await catalog.begin(EPOCH)
    began = time.perf_counter()
    batch: list[Message] = []
    for message in told(story, events, instances):
        batch.append(message)
        if len(batch) == BATCH:
            await story.tell(catalog, *batch)
            batch = []
    if batch:
        await story.tell(catalog, *batch)
    print(f"  filled in {time.perf_counter() - began:.0f} s")


def questions(events: int, first: Logged) -> Iterator[tuple[str, VersionsAsked | WorldAsked | EventsAsked]]:
    """What is asked, and how it is told."""
    moments = {name: int(events * share) for name, share in (("early", 0.02), ("middle", 0.5), ("late", 0.98))}
    for name, revision in moments.items():
        yield f"the world, {name}", WorldAsked(at=Moment(revision=revision), limit=MOST_ROWS)
        at = Moment(time=first.time + (revision - first.revision) / 1000)  # as the story tells the time
        yield f"the world, {name}, by time", WorldAsked(at=at, limit=MOST_ROWS)
        yield f"one service, {name}, by time", WorldAsked(service="service-7", at=at, limit=MOST_ROWS)
    yield "the world, now", WorldAsked(limit=MOST_ROWS)
    last = Moment(revision=events - events // 100)
    yield "versions of the last hundredth", VersionsAsked(since=last, limit=MOST_ROWS)
    yield "events of the last hundredth", EventsAsked(since=last, limit=MOST_ROWS)
    yield "versions of a service", VersionsAsked(service="service-7", limit=MOST_ROWS)
    yield "events of a rare type", EventsAsked(types=("expired",), limit=MOST_ROWS)
    one = {"namespace": first.namespace, "service": first.service, "id": first.id}
    yield "versions of an instance", VersionsAsked(**one)
    yield "events of an instance", EventsAsked(**one)


async def answered(history: History, asked: VersionsAsked | WorldAsked | EventsAsked) -> tuple[int, int]:
    """(items, pages) of a whole answer, each page as it goes on the bus."""
    items = pages = 0
    while True:
        page = await (history.events(asked) if isinstance(asked, EventsAsked) else history.versions(asked))
        msgspec.json.encode(page)
        items, pages = items + len(page.items), pages + 1
        if page.next == 0:
            return items, pages
        asked = continued(asked, page)


async def measure(dsn: str, events: int, instances: int) -> None:
    """Everything, on one database; it is filled unless it is full already."""
    catalog = open_catalog(dsn)
    await catalog.open()
    try:
        if await catalog.checkpoint() is None:
            await fill(catalog, events, instances)
        history = History(catalog)
        page = await history.events(EventsAsked(limit=1))
        for name, asked in questions(page.until, page.items[0]):
            taken = []
            for _ in range(5):
                began = time.perf_counter()
                items, pages = await answered(history, asked)
                taken.append((time.perf_counter() - began) * 1000)
            print(f"  {name:34} {statistics.median(taken):9.1f} {max(taken):9.1f} {items:9,} {pages:7}")
    finally:
        await catalog.close()


def main() -> None:
    """Run what the command line names; both if it names none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="a folder that keeps the SQLite file, or has one")
    asked = parser.parse_args()
    print(f"{'':36} {'median ms':>9} {'worst':>9} {'items':>9} {'pages':>7}")
    if "sqlite" in asked.databases:
        print("SQLite")
        with tempfile.TemporaryDirectory() as folder:
            file = (asked.keep or Path(folder)) / "past.db"
            asyncio.run(measure(f"sqlite:///{file}", asked.events, asked.instances))
    if "postgres" in asked.databases:
        print("PostgreSQL")
        server = PostgresServer()
        try:
            asyncio.run(measure(server.dsn(), asked.events, asked.instances))
        finally:
            server.close()


if __name__ == "__main__":
    main()
