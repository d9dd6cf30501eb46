"""`adsum verify`: is the catalog what the log says, and what the caches hear."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from adsum.clients.directory import Directory
from adsum.clients.registry import connect
from adsum.events.errors import InvalidValue
from adsum.events.tools import Look, Shown, Verified, Verify, VerifyAlone

from .export import show_facts
from .options import Where, broker_options, json_option, pass_where
from .output import Cell, Column, Lines, show_blank, show_json
from .session import reading, run
from .tools import base_option, load, progress_of

__all__ = ["parse_head", "verify"]

CACHE_WAIT = 10.0
"""Seconds for a cache to be loaded and proven complete."""
_HEAD = re.compile(r"([0-9a-f]{64})(?:@([1-9][0-9]{0,18}))?")


@click.command(short_help="Whether the catalog and the caches are what the log says.")
@click.option("--catalog", metavar="DSN", help="Compare this catalog too; it is only read, an adsumd may be using it.")
@click.option("--head", metavar="HASH[@REVISION]", help="Check a running hash that was printed before and kept.")
@base_option
@click.option("--offline", is_flag=True, help="Without a broker: whether the catalog agrees with itself.")
@json_option
@broker_options
@pass_where
def verify(
    where: Where, catalog: str | None, head: str | None, base: tuple[str, ...], offline: bool, as_json: bool
) -> int:
    """Read the log once, fold it anew, and compare: the catalog row by row, the topology, a live cache.

    Names the first difference of each: its table and place, what the log says and what was found. Prints the running
    hash of the log; keep it elsewhere, and --head tells later whether the log still has it. --offline takes the
    catalog's own events for the log: it finds rows that do not agree, not a catalog that was made anew as a whole.

    \b
    Examples:
      adsum verify
      adsum verify --catalog sqlite:////var/lib/adsum/catalog.db --json
      adsum verify --head 6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b@1200
      adsum verify --offline --catalog sqlite:///copy.db

    \b
    Exit codes:
      0  everything that was compared agrees
      1  something differs, or could not be read
      2  wrong usage
      3  the broker cannot be reached
    """
    kept = parse_head(head) if head is not None else None
    if offline:
        if catalog is None or base:
            raise click.UsageError("--offline is for a catalog alone: name it with --catalog, and no --base.")
        found = run(_verify_alone(load("verify-alone"), catalog, kept), long=True)
    else:
        found = run(_verify(where, load("verify"), catalog, kept, base), long=True)
    if as_json:
        show_json(found)
    else:
        _show(found)
    return 1 if found.differences else 0


def parse_head(text: str) -> tuple[str, int | None]:
    """The hash and the revision in HASH[@REVISION]. Raises InvalidValue."""
    match = _HEAD.fullmatch(text.lower())
    if match is None:
        raise InvalidValue("head", text, "must be 64 hex digits, and @REVISION where it is known")
    return match[1], int(match[2]) if match[2] else None


async def _verify_alone(tool: VerifyAlone, catalog: str, head: tuple[str, int | None] | None) -> Verified:
    with progress_of("verified") as progress:
        return await tool(catalog, head=head, progress=progress)


async def _verify(
    where: Where, tool: Verify, catalog: str | None, head: tuple[str, int | None] | None, base: tuple[str, ...]
) -> Verified:
    async with reading(where) as broker, _cache(where) as cache:
        with progress_of("verified") as progress:
            return await tool(broker, catalog=catalog, head=head, cache=cache, base=base, progress=progress)


@asynccontextmanager
async def _cache(where: Where) -> AsyncIterator[Look]:
    """A look at a cache that lives as long as the block."""
    async with (
        connect(where.settings, namespace=where.namespace) as registry,
        registry.directory(wait=0) as directory,
    ):

        async def look() -> Shown:
            await directory.loaded(CACHE_WAIT)
            return _shown(directory)

        yield look


def _shown(directory: Directory) -> Shown:
    if directory.state == "live":
        return Shown(namespace=directory.namespace, instances=directory.instances())
    why = "it does not load" if directory.state == "loading" else "nobody proves it complete: no adsumd leads"
    return Shown(namespace=directory.namespace, unusable=why)


def _show(found: Verified) -> None:
    aside = f", {found.rejected} of them set aside" if found.rejected else ""
    facts = [
        ("epoch", found.epoch),
        ("revision", f"{found.revision}"),
        ("messages", f"{found.messages}{aside}, {found.seconds:.1f} s, {found.rate:,.0f}/s"),
        ("head", found.head),
    ]
    show_facts(facts)
    show_blank()
    differing = {one.part for one in found.differences}
    agreeing = [one.what for one in found.compared if one.part not in differing]
    rows = [("agrees", "green", what) for what in agreeing]
    rows += [("not compared", "yellow", what) for what in found.not_compared]
    rows += [("DIFFERS", "red", str(one)) for one in found.differences]
    Lines([Column("", least=12), Column("")]).show([Cell(name, style), Cell(what)] for name, style, what in rows)
