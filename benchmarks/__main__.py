"""adsum and its peers, measured side by side.

    python -m benchmarks compare [SCENARIO …] [--quick|--full] [--rounds N] [--only adsum etcd] [--json FILE]
    python -m benchmarks list        the scenarios
    python -m benchmarks fetch       Debian's Redis and ZooKeeper, unpacked below the temporary folder

The table goes to stdout, progress to stderr. Exit codes: 0 measured (a peer that cannot be had here is named as
absent), 1 a contender failed, 2 wrong usage.
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
from .machine import lift_limits, machine, versions
from .peers.debian import fetch
from .table import table


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    given = _parser().parse_args(arguments)
    if given.command == "list":
        for name in names():
            print(f"{name:12} {load(name).title}")
        return 0
    if given.command == "fetch":
        try:
            fetch()
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"cannot fetch: {error}", file=sys.stderr)
            return 1
        return 0
    return _compare(given)


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
    one.add_argument("--rounds", type=int, help="in place of the scenario's own number")
    one.add_argument("--only", nargs="+", default=[], metavar="CONTENDER")
    one.add_argument("--set", nargs="+", default=[], type=_field, metavar="FIELD=NUMBER", help="in place of the sizes'")
    one.add_argument("--json", type=Path, metavar="FILE")
    one.set_defaults(level="quick")
    return parser


def _scenario(name: str) -> str:
    if name not in names():
        raise argparse.ArgumentTypeError(f"there is no {name}; known are {', '.join(names())}")
    return name


def _field(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, msgspec.json.decode(value.encode())


if __name__ == "__main__":
    sys.exit(main())
