"""The options that every command shares, and where they lead: which broker, which namespace, how long to wait.

They may stand before the command or after it; what stands nearer to the command wins. A flag is stronger than the
environment, the environment stronger than the configuration file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import click
import msgspec

from adsum.events.broker import DEFAULT_URL, BrokerSettings
from adsum.events.config import Config, load_config
from adsum.events.durations import parse_duration
from adsum.events.names import check_label

__all__ = [
    "DURATION",
    "DURATION_OR_ZERO",
    "Choices",
    "Duration",
    "Where",
    "broker_options",
    "json_option",
    "pass_where",
    "take_environment",
]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
READ_TIMEOUT = 5.0


@dataclass
class Choices:
    """What was chosen so far; filled in by the options' callbacks, the group's before the command's.

    `flags` are those of them that were typed, not taken from the environment.
    """

    values: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Where:
    """Which broker and namespace a command speaks to. `timeout`: seconds it waits for the broker.

    `only`: the namespace that was typed, for what concerns all of them unless told otherwise; "": none was.
    """

    settings: BrokerSettings
    namespace: str
    timeout: float
    config: Config
    only: str = ""


class Duration(click.ParamType[float]):
    """Seconds from "30s", "1m30s"; whatever is none raises InvalidValue, which names the rule."""

    name = "duration"

    def __init__(self, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds that `value` means."""
        if self._zero and str(value) in ("0", "0s"):
            return 0.0
        return parse_duration(value, _name_of(param))


DURATION = Duration()
DURATION_OR_ZERO = Duration(zero=True)


def broker_options(command: F) -> F:
    """--nats, --namespace, --config and --timeout."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def pass_where(command: Callable[Concatenate[Where, P], R]) -> Callable[P, R]:
    """Call the command with the Where that the shared options mean, first."""

    @functools.wraps(command)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        choices = click.get_current_context().ensure_object(Choices)
        return command(_where(choices), *args, **kwargs)

    return call


def _where(choices: Choices) -> Where:
    given, typed = choices.values, choices.flags
    config = load_config(given["config"]) if "config" in given else Config()
    settings = config.nats or BrokerSettings()
    if "nats" in given:
        settings = msgspec.structs.replace(settings, url=given["nats"])
    namespace = check_label("namespace", given.get("namespace", "default"))
    timeout = parse_duration(given["timeout"], "timeout") if "timeout" in given else READ_TIMEOUT
    return Where(settings, namespace, timeout, config, typed.get("namespace", ""))


def _choose(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and param.name is not None:
        choices = ctx.ensure_object(Choices)
        choices.values[param.name] = choices.flags[param.name] = value


def _shared(flag: str, metavar: str, help: str) -> Callable[[F], F]:
    return click.option(flag, metavar=metavar, help=help, expose_value=False, callback=_choose)


_SHARED = (
    _shared("--nats", "URL", f"The broker; several with commas between.  [env: ADSUM_NATS; default: {DEFAULT_URL}]"),
    _shared("--namespace", "NAME", "The namespace.  [env: ADSUM_NAMESPACE; default: default]"),
    _shared("--config", "FILE", "Read [nats] and [discovery] from a TOML file.  [env: ADSUM_CONFIG]"),
    _shared("--timeout", "TIME", "How long to wait for the broker.  [default: 5s]"),
)
ENVIRONMENT = {"nats": "ADSUM_NATS", "namespace": "ADSUM_NAMESPACE", "config": "ADSUM_CONFIG"}


def take_environment(ctx: click.Context, environment: Callable[[str], str | None]) -> None:
    """Choose what the environment says, where no option before the command did."""
    values = ctx.ensure_object(Choices).values
    for name, variable in ENVIRONMENT.items():
        said = environment(variable)
        if said:
            values.setdefault(name, said)


def _name_of(param: click.Parameter | None) -> str:
    return (param.name or "duration").replace("_", "-") if param is not None else "duration"
