"""One schedule from its start to its check: a world, the faults, healing, the wait until all agree, the validator."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.soak.faults import carry_out
from tests.soak.history import Row, read_history
from tests.soak.recording import Recorder
from tests.soak.schedule import Schedule
from tests.soak.settling import Settling
from tests.soak.validator import Finding, validate
from tests.soak.world import World, open_world

__all__ = ["Outcome", "drive", "limit_of"]

FIRST = 120.0
"""Seconds within which a new world has to agree for the first time."""
REFUSALS = ("adsumd: the log ", "adsumd: stream ", "adsumd: event ")


class Outcome(NamedTuple):
    """What came of one schedule. `counts` is what was checked."""

    faults: Counter[str]
    counts: Counter[str]
    findings: list[Finding]
    converged_in: float


def limit_of(schedule: Schedule) -> float:
    """Seconds that all may take to agree after everything was healed.

    The dead go after two TTLs, held back for at most four more; before that somebody has to lead, and everybody to
    come back from the longest of their waits.
    """
    return 6 * schedule.size.ttl + 45.0


async def drive(schedule: Schedule, folder: Path) -> Outcome:
    """Run it in an empty folder, which keeps all records."""
    record = folder / "record"
    record.mkdir(parents=True)
    recorder = Recorder(record, "director")
    recorder.write(
        "schedule", seed=schedule.seed, world=schedule.world, steps=[step._asdict() for step in schedule.steps]
    )
    async with open_world(folder, schedule, recorder) as world:
        settling = Settling(world)
        await quiet_until_settled(world, settling, FIRST)
        await tell_all(world, "busy")
        await carry_out(world, schedule.steps)
        recorder.write("healed")
        took = await quiet_until_settled(world, settling, limit_of(schedule))
        await asyncio.gather(*(program.end() for program in world.named("service")))
        _dump(record / "log.jsonl", await settling.read())
        await asyncio.gather(*(program.end() for program in world.programs.values()))
        findings = [Finding("failed", name, error) for name, error in _failures(world)]
    history = read_history(record)
    checked = await asyncio.to_thread(validate, history)
    done = Counter(f"{fact['fault']} {fact['name'].split('-')[0]}" for fact in history.facts("director", "fault"))
    return Outcome(done, checked.counts, checked.findings + findings, took)


async def tell_all(world: World, word: str) -> None:
    """Say a word to every service."""
    for program in world.named("service"):
        program.tell(word)


async def quiet_until_settled(world: World, settling: Settling, limit: float) -> float:
    """Let nobody change anything, and wait until all agree; the seconds it took."""
    await tell_all(world, "quiet")
    return await settling.wait(limit)


def _dump(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))


def _failures(world: World) -> list[tuple[str, str]]:
    """Programs that told of an error of their own, or ended for it."""
    failed = []
    for name, said in world.errors().items():
        if "Traceback" in said:
            failed.append((name, said[said.index("Traceback") :][-1500:]))
        # Nobody puts back another log here; that a broker or a database is away is no refusal.
        failed += [(name, line) for line in said.splitlines() if line.startswith(REFUSALS)]
    for name, program in world.programs.items():
        if program.ended_by_itself and not name.startswith("adsumd"):
            failed.append((name, f"ended by itself {program.ended_by_itself} times"))
    return failed
