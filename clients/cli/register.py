"""`adsum register`: a program of any language, or something that runs elsewhere, in the registry."""

from __future__ import annotations

from typing import Any

import click

from adsum.events.description import MIN_HEARTBEAT, Endpoint, describe
from adsum.events.errors import InvalidValue
from adsum.events.ids import new_id
from adsum.events.names import check_label

from .options import DURATION, DURATION_OR_ZERO, Where, broker_options, pass_where
from .output import sentence
from .presence import Plan
from .session import heard, run
from .wrapper import keep, wrap

__all__ = ["lease", "register"]

COMMAND = "adsum.command"


class _WithCommand(click.Command):
    """Everything after the first "--" is the command, whatever it looks like; only there can one stand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command off before click looks at the rest."""
        own, command = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, None)
        if command == []:
            raise click.UsageError("there is no COMMAND after '--'.", ctx)
        ctx.meta[COMMAND] = command
        try:
            return super().parse_args(ctx, list(own))
        except click.UsageError as error:
            stray = self._stray(ctx, own) if command is None else ""
            if not stray:
                raise
            told = sentence(error.format_message())
            raise click.UsageError(f"{told} A COMMAND comes after '--' (… -- {stray} …).", ctx) from None

    def _stray(self, ctx: click.Context, args: list[str]) -> str:
        """The first word that is in nobody's place, where it looks like a program and no mistyped option."""
        parser = self.make_parser(ctx)
        parser.ignore_unknown_options = True
        try:
            _, rest, _ = parser.parse_args(list(args))
        except click.UsageError:
            return ""
        return rest[0] if rest and not rest[0].startswith("-") else ""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show it in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND ARG...]"]


@click.command(cls=_WithCommand, short_help="Run a program and keep it registered while it lives.")
@click.argument("service")
@click.option("--port", type=int, required=True, metavar="P", help="Where it listens.")
@click.option("--host", metavar="H", help="Where others reach it.  [default: this machine, as the broker sees it]")
@click.option("--id", metavar="ID", help="Its id; the later start of an id wins.  [default: a new UUIDv7]")
@click.option("--capability", "capabilities", metavar="C", multiple=True, help="What it can do; may be repeated.")
@click.option("--meta", "metadata", metavar="K=V", multiple=True, help="A fact for others; may be repeated.")
@click.option("--protocol", metavar="NAME", default="tcp", help="http, grpc, redis, …  [default: tcp]")
@click.option("--version", metavar="TEXT", default="", help="The version that runs.")
@click.option("--zone", metavar="TEXT", default="", help="Where it runs, for callers that prefer a near one.")
@click.option("--weight", metavar="W", type=float, default=1.0, help="Its share of calls; 0 for none.  [default: 1]")
@click.option("--ttl", metavar="TIME", type=DURATION, help="Silence after which it counts as stale.  [default: 15s]")
@click.option("--heartbeat", metavar="TIME", type=DURATION, help="Between two beats.  [default: 5s, at most ttl/3]")
@click.option("--no-wait", is_flag=True, help="Register at once, not only when COMMAND accepts connections.")
@click.option("--port-shared", is_flag=True, help="Start COMMAND although somebody listens at its port already.")
@click.option(
    "--drain-wait",
    metavar="TIME",
    type=DURATION_OR_ZERO,
    default="1s",
    help="Between draining and stopping, for callers to hear of it.  [default: 1s]",
)
@broker_options
@pass_where
@click.pass_context
def register(ctx: click.Context, where: Where, /, **options: Any) -> int:
    """Run COMMAND, register it as an instance of SERVICE once its port accepts connections, and deregister it when
    it ends. Without COMMAND: keep registered, until stopped, what runs elsewhere (its port is not tried).

    Where something accepts connections at the port already, COMMAND is not started and adsum ends with 1: it would
    fail, or somebody else be registered. --port-shared is for servers that share a port (SO_REUSEPORT); --no-wait does
    not look.

    COMMAND is told ADSUM_ID, ADSUM_SERVICE, ADSUM_NAMESPACE, ADSUM_PORT and ADSUM_NATS in its environment.

    COMMAND must stay in the foreground. It keeps this terminal and starts whether or not there is a broker. On SIGTERM
    it is drained, deregistered and then sent SIGTERM itself; a second signal cuts that short. SIGHUP, SIGUSR1 and
    SIGUSR2 are passed on. When it is superseded by a later start of the same id, or an operator deregisters it, it
    goes on unregistered. When adsum itself is killed, so is COMMAND (on Linux, and unless it changed its user), and
    the entry lapses by itself.

    `adsum log` tells why it left: "exit 3", "signal 9 (SIGKILL)", "stopped" (SIGTERM to adsum), "interrupted".

    Ends with COMMAND's exit code, 128 + n after signal n; 127 if there is no COMMAND, 126 if it cannot be run.

    \b
    Examples:
      adsum register web --port 8000 --protocol http -- python -m http.server 8000
      adsum register cache --port 6379 --id cache-1 --ttl 3s -- redis-server
      adsum register mail --host smtp.example.com --port 25
    """
    command: list[str] | None = ctx.meta[COMMAND]
    plan = _plan(where, **options)
    heard(outages=True)
    return run(wrap(where, plan, command) if command else keep(where, plan))


def _plan(
    where: Where,
    *,
    service: str,
    port: int,
    host: str | None,
    id: str | None,
    capabilities: tuple[str, ...],
    metadata: tuple[str, ...],
    protocol: str,
    version: str,
    zone: str,
    weight: float,
    ttl: float | None,
    heartbeat: float | None,
    no_wait: bool,
    port_shared: bool,
    drain_wait: float,
) -> Plan:
    """All options checked, so that nothing is started that could not be registered. Raises InvalidValue."""
    check_label("service", service)
    if id is not None:
        check_label("id", id)
    chosen = lease(where, heartbeat, ttl)
    described = describe(
        [Endpoint(host="localhost" if host is None else host, port=port, protocol=protocol)],
        capabilities=capabilities,
        metadata=dict(_pair(text) for text in metadata),
        version=version,
        zone=zone,
        weight=weight,
        heartbeat=chosen[0],
        ttl=chosen[1],
    )
    return Plan(
        service=service,
        id=new_id() if id is None else id,
        host=described.endpoints[0].host if host is not None else None,
        described=described,
        wait_for_port=not no_wait,
        port_shared=port_shared,
        drain_wait=drain_wait,
    )


def lease(where: Where, heartbeat: float | None, ttl: float | None) -> tuple[float, float]:
    """(heartbeat, ttl): what was not given follows from what was, three beats a TTL, and the configuration."""
    if ttl is None:
        ttl = where.config.ttl if heartbeat is None else max(where.config.ttl, 3 * heartbeat)
    if heartbeat is None:
        heartbeat = max(MIN_HEARTBEAT, min(where.config.heartbeat_interval, ttl / 3))
    return heartbeat, ttl


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidValue("meta", text, "must be KEY=VALUE")
    return key, value
