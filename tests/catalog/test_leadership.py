"""What the leader keeps beside the fold, fenced by its generation."""

from __future__ import annotations

import time

import pytest

from adsum.events.ids import new_id
from adsum.projector.catalog import Catalog, Heard, Held, Observations, Observed
from adsum.projector.databases import open_catalog
from adsum.projector.errors import Fenced

from .conftest import Database


async def test_a_new_catalog_has_observed_nothing(catalog: Catalog) -> None:
    assert await catalog.observed() == Observed(0.0, (), (), 0)


async def test_each_generation_is_above_the_one_before(catalog: Catalog) -> None:
    assert [await catalog.take() for _ in range(3)] == [1, 2, 3]


async def test_what_was_observed_is_there_for_the_next(catalog: Catalog) -> None:
    generation = await catalog.take()
    first, second, third = (new_id() for _ in range(3))
    heard = (Heard(first, 7, 1.25), Heard(second, 1, 2.5), Heard(third, 2**53 + 1, 0.1 + 0.2))
    held = (Held("default", "orders", 2.0), Held("default", "payments", 2.5))
    await catalog.observe(generation, Observations(3.75, heard, (), held, 41))
    assert await catalog.observed() == Observed(3.75, heard, held, 41)
    more = (Heard(first, 8, 4.0),)
    await catalog.observe(generation, Observations(5.0, more, (second,), held[1:], 43))
    assert await catalog.take() == generation + 1
    assert await catalog.observed() == Observed(5.0, (*more, heard[2]), held[1:], 43)


async def test_a_generation_that_is_over_writes_nothing(catalog: Catalog) -> None:
    old = await catalog.take()
    kept = Observations(1.0, [Heard("a", 1, 1.0)], (), [Held("default", "orders", 1.0)], 5)
    await catalog.observe(old, kept)
    new = await catalog.take()
    with pytest.raises(Fenced):
        await catalog.observe(old, Observations(9.0, [Heard("b", 9, 9.0)], ["a"], (), 99))
    assert await catalog.observed() == Observed(1.0, (Heard("a", 1, 1.0),), (Held("default", "orders", 1.0),), 5)
    await catalog.observe(new, Observations(2.0, (), (), (), 6))
    with pytest.raises(Fenced):
        await catalog.observe(new + 1, Observations(3.0, (), (), (), 7))


async def test_the_generation_outlives_the_catalog_object(catalog: Catalog, database: Database) -> None:
    old = await catalog.take()
    await catalog.close()
    again = open_catalog(database.dsn)
    await again.open()
    try:
        assert await again.take() == old + 1
    finally:
        await again.close()


async def test_ten_thousand_lives_are_written_at_once(catalog: Catalog) -> None:
    generation = await catalog.take()
    heard = [Heard(new_id(), 1, 1.0) for _ in range(10_000)]
    await catalog.observe(generation, Observations(1.0, heard, (), (), 0))
    began = time.perf_counter()
    await catalog.observe(generation, Observations(2.0, [each._replace(counter=2) for each in heard], (), (), 0))
    assert time.perf_counter() - began < 2  # 20 to 40 ms where nothing else runs
    assert {each.counter for each in (await catalog.observed()).heard} == {2}
