"""The views: what operators and programs of the older kind ask in plain SQL, the same in both dialects."""

from __future__ import annotations

from typing import Any

from adsum.projector.catalog import Catalog, Heard, Observations

from .conftest import Database, PostgresDatabase
from .story import Story, key


def text(value: Any) -> str:
    """A time as text of the same form in both."""
    return value if isinstance(value, str) else value.isoformat()


async def told(catalog: Catalog) -> Story:
    """Three instances: one stale, one on IPv6 without capabilities, one plain."""
    story = Story()
    await story.tell(
        catalog,
        story.register(key(1), capabilities=["payments", "refunds"]),
        story.register(key(2)),
        story.register(key(3), capabilities=[]),
        story.lapse(key(2)),
    )
    return story


async def test_those_who_are_there_now(catalog: Catalog, database: Database) -> None:
    await told(catalog)
    rows = await database.run(
        "SELECT instance, routable, host, port, protocol, capabilities FROM instances_now ORDER BY instance"
    )
    assert [(one, bool(routable), *rest) for one, routable, *rest in rows] == [
        ("i-0001", True, "10.0.0.7", 8080, "http", "payments,refunds"),
        ("i-0002", False, "10.0.0.7", 8080, "http", "payments"),
        ("i-0003", True, "10.0.0.7", 8080, "http", ""),
    ]


async def test_a_table_of_heartbeats(catalog: Catalog, database: Database) -> None:
    """What was written down a moment ago was seen so long ago as the observed clock says, by the database's clock."""
    story = await told(catalog)
    heard = [Heard(story.terms[key(1)], 4, 99.0), Heard(story.terms[key(2)], 4, 40.0)]
    await catalog.observe(await catalog.take(), Observations(100.0, heard, (), (), 4))
    ago = (
        "now() - interval '{} seconds'" if isinstance(database, PostgresDatabase) else "datetime('now', '-{} seconds')"
    )
    fresh = f"SELECT id, address, service_type, capabilities FROM ingesters WHERE last_seen > {ago} ORDER BY id"
    assert await database.run(fresh.format(30)) == [("i-0001", "10.0.0.7:8080", "orders", "payments,refunds")]
    assert [row[0] for row in await database.run(fresh.format(90))] == ["i-0001", "i-0002"]


async def test_who_was_never_heard_was_seen_when_it_registered(catalog: Catalog, database: Database) -> None:
    await told(catalog)
    rows = await database.run("SELECT last_seen, registered_at FROM instances_now")
    assert [text(seen) for seen, _ in rows] == [text(registered) for _, registered in rows]


async def test_an_address_of_ipv6_can_be_dialled(catalog: Catalog, database: Database) -> None:
    story = Story()
    message = story.register(key())
    data = message.data.replace(b"10.0.0.7", b"2001:db8::7")
    await story.tell(catalog, message._replace(data=data))
    assert await database.run("SELECT address FROM ingesters") == [("[2001:db8::7]:8080",)]


async def test_every_version_and_whether_it_might_be_chosen(catalog: Catalog, database: Database) -> None:
    story = await told(catalog)
    await story.tell(catalog, story.resume(key(2)), story.leave(key(2)))
    rows = await database.run(
        "SELECT began_by, ended_by, routable FROM instance_history WHERE instance = 'i-0002' ORDER BY began_revision"
    )
    assert [(began, ended, bool(routable)) for began, ended, routable in rows] == [
        ("registered", "lapsed", True),
        ("lapsed", "resumed", False),
        ("resumed", "deregistered", True),
    ]


async def test_every_message_has_its_link_of_the_running_hash(catalog: Catalog, database: Database) -> None:
    story = await told(catalog)
    await story.tell(catalog, story.raw(key(), b"junk"), story.leave(key(1)))
    links = await database.run("SELECT hash FROM (SELECT sequence, hash FROM events UNION ALL"
                               " SELECT sequence, hash FROM rejected) AS log ORDER BY sequence")  # fmt: skip
    assert len({bytes(link) for (link,) in links}) == 6
    checkpoint = await catalog.checkpoint()
    assert checkpoint is not None
    assert bytes(links[-1][0]) == checkpoint.head == story.head
