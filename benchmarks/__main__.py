"""adsum and its peers, measured side by side.

    python -m benchmarks compare [SCENARIO …] [--quick|--full] [--rounds N] [--only adsum etcd] [--json FILE]
    python -m benchmarks plot FILE --into FOLDER   what --json wrote, as SVG files, where a curve says more than a table
    python -m benchmarks list        the scenarios, their contenders and sizes
    python -m benchmarks fetch       Debian's Redis and ZooKeeper, unpacked below the temporary folder

The table goes to stdout, progress to stderr, and so does what was drawn and what was left out. Exit codes: 0 measured
(a peer that cannot be had here is named as absent) or drawn, 1 a contender failed or nothing could be drawn, 2 wrong
usage.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from .compare import Row, compare, load, names
from .curves import panels, read
from .machine import lift_limits, machine, versions
from .peers.debian import fetch
from .plot import draw
from .table import size_text, table


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    given = _parser().parse_args(arguments)
    if given.command == "list":
        for name in names():
            scenario = load(name)
            print(f"{name:12} {scenario.title}")
            print(f"{'':12}   contenders: {', '.join(scenario.contenders)}")
            for level, sizes in scenario.sizes.items():
                print(f"{'':12}   {level}: {'; '.join(map(size_text, sizes))}")
        return 0
    if given.command == "fetch":
        try:
            fetch()
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"cannot fetch: {error}", file=sys.stderr)
            return 1
        return 0
    if given.command == "plot":
        return _plot(given.file, given.into)
    trouble = _misnamed(given)
    if trouble:
        print(trouble, file=sys.stderr)
        return 2
    return _compare(given)


def _misnamed(given: argparse.Namespace) -> str:
    """What of the command line names nothing that is there; empty: nothing. Told before hours are measured in vain."""
    chosen = [load(name) for name in given.scenarios or names()]
    contenders = dict.fromkeys(each for scenario in chosen for each in scenario.contenders)
    fields = dict.fromkeys(each for scenario in chosen for size in scenario.sizes[given.level] for each in size)
    for what, asked, known in (("contender", given.only, contenders), ("field", dict(given.set), fields)):
        for name in asked:
            if name not in known:
                return f"there is no {what} {name}; known are {', '.join(known)}"
    if given.json is not None and not given.json.parent.is_dir():
        return f"there is no folder {given.json.parent} for {given.json.name}"
    return ""


def _compare(given: argparse.Namespace) -> int:
    lift_limits()
    chosen = given.scenarios or names()
    kinds = [kind for name in chosen for kind in load(name).contenders if not given.only or kind in given.only]
    told = {"machine": machine(), "level": given.level, "versions": versions(kinds)}
    print(" · ".join(f"{key} {value}" for key, value in told["machine"].items()))
    print("\n".join(f"{name}: {version}" for name, version in told["versions"].items()), flush=True)
    rows: list[Row] = []
    for name in chosen:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            measured = runner.run(compare(name, given.level, given.rounds, given.only, dict(given.set)))
        rows += measured
        print("\n" + table(name, measured), flush=True)
        if given.json is not None:  # after each, so that an interrupted run has what it measured
            given.json.write_bytes(msgspec.json.format(msgspec.json.encode({**told, "rows": rows}), indent=1))
    return 1 if any(row.trouble and not row.absent for row in rows) else 0


def _plot(file: Path, folder: Path) -> int:
    try:
        measured = read(file)
    except (OSError, msgspec.MsgspecError) as error:
        print(f"{file} is not what compare --json writes: {error}", file=sys.stderr)
        return 2
    drawn, left_out = panels(measured.rows)
    for reason in left_out:
        print(f"left out: {reason}", file=sys.stderr)
    try:
        for name in dict.fromkeys(panel.curve.plot for panel in drawn):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.svg"
            draw([panel for panel in drawn if panel.curve.plot == name], measured.machine, path)
            print(f"written: {path}", file=sys.stderr)
    except (OSError, ImportError) as error:
        print(f"cannot draw: {error}", file=sys.stderr)
        return 1
    return 0 if drawn else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list")
    commands.add_parser("fetch")
    one = commands.add_parser("compare")
    one.add_argument("scenarios", nargs="*", metavar="SCENARIO", type=_scenario, help=f"of {', '.join(names())}; all")
    levels = one.add_mutually_exclusive_group()
    for level, told in (("tiny", "seconds, shows that it runs"), ("quick", "minutes (the default)"), ("full", "hours")):
        levels.add_argument(f"--{level}", dest="level", action="store_const", const=level, help=told)
    one.add_argument("--rounds", type=_rounds, metavar="N", help="in place of the scenario's own number")
    one.add_argument("--only", nargs="+", default=[], metavar="CONTENDER", help="of those that `list` names")
    one.add_argument("--set", nargs="+", default=[], type=_field, metavar="FIELD=NUMBER", help="in place of the sizes'")
    one.add_argument("--json", type=Path, metavar="FILE")
    one.set_defaults(level="quick")
    plot = commands.add_parser("plot")
    plot.add_argument("file", metavar="FILE", type=Path, help="that `compare --json FILE` wrote")
    plot.add_argument("--into", type=Path, metavar="FOLDER", required=True)
    return parser


def _scenario(name: str) -> str:
    if name not in names():
        raise argparse.ArgumentTypeError(f"there is no {name}; known are {', '.join(names())}")
    return name


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number above 0")
    return int(text)


def _field(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        number = msgspec.json.decode(value.encode(), type=int | float)
    except msgspec.MsgspecError:
        number = 0
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not FIELD=NUMBER with a number above 0")
    return name, number


if __name__ == "__main__":
    sys.exit(main())
