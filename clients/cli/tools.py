"""Loading what the projector does for the command: by name, since the clients import no projector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import Any

import click

from adsum.events.tools import GROUP, Progress

from .progress import progress

__all__ = ["NeedsProjector", "base_option", "load", "progress_of"]

base_option = click.option(
    "--base", metavar="FILE", multiple=True, help="An export of what was removed from the log; repeated, oldest first."
)


class NeedsProjector(click.ClickException):
    """The projector's dependencies are not installed here."""

    exit_code = 2

    def __init__(self) -> None:
        super().__init__("needs adsum[projector]: pip install 'adsum[projector]'")


def load(name: str) -> Callable[..., Any]:
    """The tool of that name. Raises NeedsProjector."""
    try:
        [entry] = entry_points(group=GROUP, name=name)
        tool: Callable[..., Any] = entry.load()
    except (ValueError, ImportError):
        raise NeedsProjector from None
    return tool


@contextmanager
def progress_of(doing: str) -> Iterator[Progress]:
    """Show how far a tool is."""
    of = 0
    with progress(doing, lambda: of) as tell:

        def hear(done: int, total: int) -> None:
            nonlocal of
            of = total
            tell(done)

        yield hear
