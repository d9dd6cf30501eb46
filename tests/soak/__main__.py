"""`python -m tests.soak`: schedule after schedule until the time is over, each in a world of its own; the figures."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.soak.drive import Outcome, drive
from tests.soak.schedule import WORLDS, Schedule, Size, make_schedule
from tests.soak.validator import CHECKS, Finding

SIZES = {"sqlite": Size(), "postgres": Size(), "cluster": Size(heartbeat=3.0, ttl=15.0)}
"""In a cluster the death of a leader stops publishing for some seconds: the TTL there is the product's default."""
WORDS = {
    "lost": "lost events",
    "verdict": "false expiries",
    "backwards": "backward revisions",
    "set": "sets the log never had",
    "ghost": "ghosts",
    "unseen": "living and not there",
    "diverged": "divergences",
    "failed": "programs failed",
}
assert WORDS.keys() == {*CHECKS, "failed"}


class Tally:
    """The sum of all schedules."""

    def __init__(self) -> None:
        self.schedules = 0
        self.faults: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.worst = 0.0
        self.failed: list[str] = []

    def add(self, schedule: Schedule, outcome: Outcome) -> None:
        """One more."""
        self.schedules += 1
        self.faults += outcome.faults
        self.counts += outcome.counts
        self.found += Counter(finding.check for finding in outcome.findings)
        self.worst = max(self.worst, outcome.converged_in)
        if outcome.findings:
            self.failed.append(replay(schedule))

    def figures(self) -> dict[str, object]:
        """What is printed in the end."""
        return {
            "schedules run": self.schedules,
            "faults injected": self.faults.total(),
            **{words: self.found[check] for check, words in WORDS.items()},
            "worst seconds to converge": round(self.worst, 1),
            "faults": dict(sorted(self.faults.items())),
            "checked": dict(sorted(self.counts.items())),
            "replay": self.failed,
        }


def replay(schedule: Schedule) -> str:
    """The command that runs just this schedule again."""
    size, usual = schedule.size, Size()
    options = f"--seed {schedule.seed} --world {schedule.world} --seconds {schedule.seconds:g} --schedules 1"
    options += f" --services {size.services}" if size.services != usual.services else ""
    options += f" --watchers {size.watchers}" if size.watchers != usual.watchers else ""
    return f"make soak ARGS='{options}'"


async def soak(given: argparse.Namespace, folder: Path, tally: Tally) -> None:
    """Schedules until the time is over, or as many as were asked for."""
    began, seed = time.monotonic(), given.seed
    while tally.schedules < given.schedules if given.schedules else time.monotonic() - began < 60 * given.minutes:
        schedule = schedule_of(seed, given)
        place = folder / f"seed-{seed}"
        outcome = await driven(schedule, place)
        tally.add(schedule, outcome)
        if outcome.findings:
            print(f"\nseed {seed}: the records are in {place}", file=sys.stderr)
            for finding in outcome.findings[:20]:
                print(f"  {finding.check}: {finding.who}: {finding.what}", file=sys.stderr)
        elif not given.keep:
            shutil.rmtree(place)
        progress(given, tally, seed, schedule, time.monotonic() - began)
        seed += 1


async def driven(schedule: Schedule, place: Path) -> Outcome:
    """What came of a schedule; one that cannot be carried out to its end is something found too."""
    try:
        return await drive(schedule, place)
    except Exception:  # noqa: BLE001  # whatever it is: it is told, and the others are run
        return Outcome(Counter(), Counter(), [Finding("failed", "soak", traceback.format_exc())], 0.0)


def schedule_of(seed: int, given: argparse.Namespace) -> Schedule:
    """The schedule of a seed at the size of its world."""
    world = given.world or make_schedule(seed, 0, Size()).world
    size = SIZES[world]._replace(services=given.services, watchers=given.watchers)
    return make_schedule(seed, given.seconds, size, world)


def progress(given: argparse.Namespace, tally: Tally, seed: int, schedule: Schedule, seconds: float) -> None:
    """A line on a terminal, overwritten each time."""
    if sys.stderr.isatty():
        goal = f"{given.schedules} schedules" if given.schedules else f"{given.minutes:g} min"
        print(
            f"\r{seconds / 60:.1f} min of {goal}: {tally.schedules} schedules (last: seed {seed}, {schedule.world}), "
            f"{tally.faults.total()} faults, {tally.found.total()} found",
            end="\033[K",
            file=sys.stderr,
            flush=True,
        )


def show(figures: dict[str, object]) -> None:
    """The figures for people."""
    for name, figure in figures.items():
        if isinstance(figure, dict):
            print(f"{name}:")
            for inner, count in figure.items():
                print(f"  {inner:38} {count:>8,}")
        elif isinstance(figure, list):
            for line in figure:
                print(f"{name}: {line}")
        else:
            print(f"{name:40} {figure:>8,}")


def main() -> int:
    """Run; 1 if anything was found."""
    given = _given()
    folder = Path(tempfile.mkdtemp(prefix="adsum-soak-"))
    tally = Tally()
    try:
        asyncio.run(soak(given, folder, tally))
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
    if not any(folder.iterdir()):
        folder.rmdir()
    print(file=sys.stderr)
    print(json.dumps(tally.figures())) if given.json else show(tally.figures())
    return 1 if tally.failed else 0


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="begin another schedule until then (default 10)")
    parser.add_argument("--schedules", type=int, default=0, help="run so many instead")
    parser.add_argument("--seed", type=int, default=1, help="of the first schedule; the next has the next one")
    parser.add_argument("--world", choices=WORLDS, help="one kind only (default: the seed chooses)")
    parser.add_argument("--seconds", type=float, default=75.0, help="of faults in each schedule (default 75)")
    parser.add_argument("--services", type=int, default=Size().services, help="processes that register")
    parser.add_argument("--watchers", type=int, default=Size().watchers, help="processes that watch")
    parser.add_argument("--keep", action="store_true", help="keep the records also where nothing was found")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
