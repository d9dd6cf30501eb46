"""The program `adsum`: its commands, and how every error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TextIO

import click

from adsum.events.errors import AdsumError, BrokerUnavailable, InvalidValue
from adsum.events.reader import ReaderLost

from . import (
    at,
    bring,
    diff,
    export,
    listing,
    log,
    operate,
    rebuild,
    register,
    status,
    trim,
    uptime,
    verify,
    watch,
    why,
)
from .child import CannotStart
from .options import broker_options, take_environment
from .output import PipeClosed, note, sentence
from .session import DEBUG, heard

__all__ = ["cli", "main"]

FAILED = 1
USAGE = 2
UNREACHABLE = 3
INTERRUPTED = 130
BROKEN_PIPE = 141


@click.group(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@broker_options
@click.version_option(package_name="adsum", prog_name="adsum", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Look at the service registry, register programs of any language, operate.

    \b
    Examples:
      adsum services
      adsum register orders --port 8080 -- ./orders --listen :8080
      adsum instances orders --json
      adsum watch
      adsum at "yesterday 14:32" orders

    \b
    Exit codes:
      0    done
      1    it could not be done, (status) the registry is not working, or
           (diff --exit-code) something differs
      2    wrong usage, or a value that breaks a rule
      3    the broker cannot be reached, or no adsumd there answers
      130  interrupted (Ctrl-C)
      register … -- COMMAND ends with COMMAND's own: 128 + n after signal n,
      126 if it cannot be run, 127 if it is not there.
    """
    take_environment(ctx, os.environ.get)


for command in (
    listing.services,
    listing.instances,
    watch.watch,
    log.log,
    at.at,
    diff.diff,
    why.why,
    uptime.uptime,
    status.status,
    register.register,
    operate.drain,
    operate.deregister,
    export.export_log,
    bring.import_log,
    trim.trim_log,
    rebuild.rebuild,
    verify.verify,
):
    cli.add_command(command)


def main() -> None:
    """Run the command and end the process with its exit code; no error ends in a traceback."""
    sys.excepthook = _unexpected
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()  # None where it was closed (>&-)
    heard(outages=False)
    code = _outcome()
    if code == BROKEN_PIPE:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else the interpreter complains when it flushes at exit
    sys.exit(code)


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _outcome() -> int:
    try:
        outcome = cli.main(prog_name="adsum", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as shown:
        click.echo(shown.format_message(), err=True)
        return USAGE
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        note(error.format_message())
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except PipeClosed:
        return BROKEN_PIPE
    except AdsumError as error:
        note(str(error))
        return _code(error)
    return outcome if isinstance(outcome, int) else 0


def _usage(error: click.UsageError) -> int:
    path = error.ctx.command_path if error.ctx is not None else "adsum"
    note(f"{sentence(error.format_message())} Try '{path} --help'.")
    return USAGE


def _code(error: AdsumError) -> int:
    match error:
        case InvalidValue():
            return USAGE
        case BrokerUnavailable() | ReaderLost():
            return UNREACHABLE
        case CannotStart(exit_code=code):
            return code
        case _:
            return FAILED


def _unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A fault of the program itself: one line all the same. Ctrl-C before or after the command: none."""
    if issubclass(kind, KeyboardInterrupt):
        return
    if os.environ.get(DEBUG):
        sys.__excepthook__(kind, error, trace)
    else:
        note(f"unexpected {kind.__name__}: {error} (a fault of adsum's own; {DEBUG}=1 shows where)")
