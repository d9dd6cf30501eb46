"""adsumd killed with kill -9 between any two steps of a transaction: it goes on as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest

from adsum.events.streams import TOPOLOGY
from adsum.projector.failpoints import POINTS, Point
from tests.daemons import topology
from tests.databases import NewDatabase
from tests.faults.deeds import KEYS, WORDS, Deeds
from tests.faults.model import Model
from tests.faults.spine import Spine, running_spine


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at_a_failpoint_everything_is_folded_once_and_announced_once(
    tmp_path: Path, new_database: NewDatabase, point: Point
) -> None:
    """Model, catalog, cache and a fold of the log agree, and each change is one message of the topology."""
    async with running_spine(tmp_path, await new_database(tmp_path)) as spine:
        deeds = Deeds(spine, Model([]))
        await deeds.words(["register"] * len(KEYS))
        await deeds.agree()
        before, messages = deeds.model.at, await announcements(spine)
        spine.order(point)
        await deeds.words(WORDS)
        assert await spine.died(within=20), spine.daemon.stderr
        stored, announced = await stored_up_to(spine), await announced_up_to(spine)
        assert (stored > before) == (point not in ("after fold", "before commit"))
        assert (announced > before) == (point == "after announce")
        await spine.buried()
        await spine.start()
        await deeds.agree()
        assert await announcements(spine) == messages + len(WORDS)


async def stored_up_to(spine: Spine) -> int:
    """The catalog's checkpoint."""
    [(sequence,)] = await spine.database.run("SELECT sequence FROM checkpoint")
    return int(sequence)


async def announced_up_to(spine: Spine) -> int:
    """The highest revision in the topology."""
    told = [await topology(spine.broker, key) for key in KEYS]
    return max(one.revision for one in told if one is not None)


async def announcements(spine: Spine) -> int:
    """How many messages the topology ever had."""
    info = await spine.broker.stream_info(TOPOLOGY)
    assert info is not None
    return info.state.last_seq
