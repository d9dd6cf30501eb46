"""The program `adsumd`."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from adsum.events.config import Config, load_config
from adsum.events.errors import AdsumError, InvalidValue, StreamMissing
from adsum.events.settings import BrokerSettings, check_servers

from .daemon import Options, Ready, check_replicas, serve
from .databases import open_catalog
from .errors import first_error

__all__ = ["main"]

GARBAGE_AFTER = 20_000
"""New objects after which cyclic garbage is looked for: with the default, 700, a tenth of its work in a burst."""

DESCRIPTION = """\
adsumd keeps the service registry: it folds what services say on NATS into a catalog, notices who falls silent, and
tells every client of each change. Without options it brings a broker of its own (loopback only) and keeps everything
in .adsum."""
EXAMPLES = """\
examples:
  adsumd                                             everything in one process, data in .adsum
  adsumd --data /var/lib/adsum --listen 127.0.0.1:4333
  adsumd --nats nats://broker:4222 --replicas 3      a broker that is there already
  adsumd --nats nats://broker:4222 --catalog postgresql://adsum@db/adsum

exit codes: 0 ended by SIGTERM or SIGINT, 1 could not start or go on (one line on stderr says why), 2 wrong usage"""


class _Parser(argparse.ArgumentParser):
    """An argument parser that names the closest option to an unknown one, and answers in one line."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments:"):
            given = message.split(": ", 1)[1].split()[0].split("=")[0]
            close = difflib.get_close_matches(given, self._option_string_actions, n=1, cutoff=0.5)
            message = f"unknown option {given}" + (f"; did you mean {close[0]}?" if close else "")
        self.exit(2, f"adsumd: {message} (see adsumd --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon until SIGTERM or SIGINT; the exit code."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(
        level=given.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        options = _options(given)
    except InvalidValue as error:
        print(f"adsumd: {error}", file=sys.stderr)
        return 2
    gc.set_threshold(GARBAGE_AFTER)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_run(options))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="adsumd",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--data", metavar="DIR", default=".adsum", help="where everything is kept (default .adsum)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where the embedded broker listens (default 127.0.0.1:4222; port 0: a free one)",
    )
    parser.add_argument("--nats", metavar="URL", help="use the broker at this address instead of an embedded one")
    parser.add_argument(
        "--replicas", metavar="N", type=int, default=1, help="copies of each stream, 1, 3 or 5 (default 1)"
    )
    parser.add_argument(
        "--catalog", metavar="DSN", help="sqlite:///FILE or postgresql://… (default: SQLite in the data folder)"
    )
    parser.add_argument(
        "--new-epoch",
        action="store_true",
        help="the log was put back from a copy: build an empty catalog from it, and tell every cache and service",
    )
    parser.add_argument(
        "--broker-only",
        action="store_true",
        help="run only the embedded broker, for commands that want every adsumd of a log stopped (adsum import)",
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file with [database], [discovery] and [nats]")
    parser.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default="info",
        help="what goes to stderr (default info)",
    )
    return parser


def _options(given: argparse.Namespace) -> Options:
    config = load_config(given.config) if given.config else Config()
    nats = _nats(given.nats, config)
    if nats is not None and given.listen is not None:
        raise InvalidValue("--listen", given.listen, "is for the embedded broker, not together with --nats")
    if nats is not None and given.broker_only:
        raise InvalidValue("--broker-only", nats.shown, "is for the embedded broker, not together with --nats")
    dsn = given.catalog or config.dsn
    if dsn is not None:
        open_catalog(dsn)  # only to check it: nothing is opened yet
    host, port = _listen(given.listen) if given.listen is not None else ("127.0.0.1", 4222)
    return Options(
        data=Path(given.data),
        host=host,
        port=port,
        nats=nats,
        replicas=check_replicas("--replicas", given.replicas, nats),
        dsn=dsn,
        new_epoch=given.new_epoch,
        probes=config.probes,
        broker_only=given.broker_only,
    )


def _nats(url: str | None, config: Config) -> BrokerSettings | None:
    if url is None:
        return config.nats
    settings = msgspec.structs.replace(config.nats or BrokerSettings(), url=url)
    check_servers(settings)
    return settings


def _listen(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise InvalidValue("--listen", text, "must be HOST:PORT with a port from 0 to 65535", "127.0.0.1:4222")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def _run(options: Options) -> int:
    serving = asyncio.create_task(serve(options, _say_ready), name="adsumd")
    loop = asyncio.get_running_loop()
    for stop in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(stop, serving.cancel)
    try:
        await serving
    except asyncio.CancelledError:
        return 0
    except (AdsumError, ExceptionGroup) as failed:
        error = first_error(failed)
        if not isinstance(error, AdsumError):
            raise
        remedy = "; start adsumd again, it makes the stream anew" if isinstance(error, StreamMissing) else ""
        print(f"adsumd: {error}{remedy}", file=sys.stderr)
    return 1


def _say_ready(ready: Ready) -> None:
    print(ready, flush=True)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


if __name__ == "__main__":
    sys.exit(main())
