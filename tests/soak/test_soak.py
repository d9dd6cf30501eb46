"""The soak itself: a short one that finds nothing, its schedules, and a fault that it would find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.drive import drive
from tests.soak.history import Tail
from tests.soak.recording import Recorder
from tests.soak.schedule import WORLDS, Size, make_schedule

SMALL = Size(services=4, watchers=2, instances=3, heartbeat=0.5, ttl=2.0, gap=1.2)
SEED = 311
"""Both daemons, the broker, services and caches are hit, some for longer than a life lasts unheard."""


@pytest.mark.timeout(400)  # it waits with limits of its own, which tell what was seen
async def test_a_short_soak_finds_nothing(tmp_path: Path) -> None:
    """Twelve seconds of faults over one broker and two adsumd with a catalog each: nothing lost, nobody buried."""
    outcome = await drive(make_schedule(SEED, 12.0, SMALL, "sqlite"), tmp_path / "soak")
    assert outcome.findings == []
    assert outcome.faults.total() >= 8
    assert outcome.counts["acknowledged"] >= 30
    assert outcome.counts["settled"] == 2


def test_a_seed_is_a_schedule() -> None:
    """The same seed the same one, whatever ran before; another seed another one; every kind of world comes."""
    made = [make_schedule(seed, 60.0, Size()) for seed in range(40)]
    assert made == [make_schedule(seed, 60.0, Size()) for seed in range(40)]
    assert len({schedule.steps for schedule in made}) == 40
    assert {schedule.world for schedule in made} == set(WORLDS)


def test_a_schedule_hurts_nobody_twice_at_a_time_and_ends_in_time() -> None:
    for seed in range(80):
        schedule = make_schedule(seed, 60.0, Size() if seed % 2 else SMALL)
        until: dict[str, float] = {}
        for step in schedule.steps:
            assert step.at >= until.get(step.target, 0.0)
            assert step.at + step.seconds <= 60.01
            until[step.target] = step.at + step.seconds


def test_a_line_that_is_not_whole_yet_is_read_later(tmp_path: Path) -> None:
    """A process may be killed while it writes, and is read while it lives."""
    recorder = Recorder(tmp_path, "service-1")
    recorder.write("left", key="a")
    tail = Tail(recorder.path)
    with recorder.path.open("ab") as file:
        file.write(b'{"fact": "le')
    assert [fact["fact"] for fact in tail.more()] == ["left"]
    assert tail.more() == []
    with recorder.path.open("ab") as file:
        file.write(b'ft", "at": 1}\n')
    assert [fact["fact"] for fact in tail.more()] == ["left"]
    assert Recorder(tmp_path, "service-1").path.name == "service-1.2.jsonl"
