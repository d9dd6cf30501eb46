"""What the command prints: a table in a terminal, aligned text without colour in a pipe, JSON on request.

Standard output carries the answer, standard error whatever else there is to say.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from adsum.events.errors import AdsumError

__all__ = [
    "Cell",
    "PipeClosed",
    "brief",
    "clean",
    "fitting",
    "iso",
    "note",
    "sentence",
    "show_json",
    "show_json_lines",
    "show_rows",
    "show_table",
]

_PASSWORD = re.compile(r"(?<=://)[^@/\s]+@")
GAP = 2
KEPT = 4
_COLOURS = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
EMPTY = "-"
"""What an empty cell shows in a pipe, so that columns can be counted."""


class PipeClosed(AdsumError):
    """Who read the output had enough (`| head`); no reason for a word."""


class Cell(NamedTuple):
    """A text, and how a terminal colours it (a style of rich)."""

    text: str
    style: str = ""


def note(text: str) -> None:
    """One line on standard error: `adsum: text`. Passwords in URLs are left out."""
    line = _PASSWORD.sub("", clean(text))
    try:
        sys.stderr.write(f"adsum: {line}\n")
        sys.stderr.flush()
    except OSError:  # nobody reads it; what is noted goes on all the same
        return


def show_json(value: object) -> None:
    """A whole answer as one JSON document."""
    _write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def show_json_lines(values: Iterable[object]) -> None:
    """Some of many answers, each as one line of JSON, written at once."""
    _write(b"".join(msgspec.json.encode(value) + b"\n" for value in values))


def show_rows(rows: Iterable[Sequence[Cell]], widths: Sequence[int]) -> None:
    """Some lines of a table whose end is not known yet, written at once; `widths` are the least ones."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    lines = []
    for row in rows:
        padded = (Cell(clean(cell.text).ljust(width), cell.style) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(_ansi(cell) if coloured else cell.text for cell in padded).rstrip())
    _write("".join(f"{line}\n" for line in lines).encode())


def show_table(titles: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """A table: a terminal's is coloured, fits its width and leaves out columns that are empty in every row."""
    cleaned = [[Cell(clean(cell.text), cell.style) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _show_rich(titles, cleaned)
    else:
        _show_plain(titles, cleaned)


def clean(text: str) -> str:
    """`text` without what could steer a terminal or break a line: such characters are shown by their code."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def sentence(text: str) -> str:
    """`text` with a full stop, if it does not end like a sentence already. Pure."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def brief(id: str) -> str:
    """An id as people tell it from others: the beginning and the end of a long one. Pure."""
    return id if len(id) <= 13 else f"{id[:6]}…{id[-6:]}"


def iso(seconds: float) -> str:
    """A time of the broker (seconds since 1970) as ISO 8601 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _show_plain(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    lines = [list(titles), *([cell.text or EMPTY for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    text = "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    _write(text.encode() + b"\n")


def _show_rich(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    widths = [
        max(cell_len(text) for text in (title, *(row[at].text for row in rows))) for at, title in enumerate(titles)
    ]
    filled = [at for at in range(len(titles)) if any(row[at].text for row in rows)]
    shown = fitting(filled, widths, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for at in shown:
        table.add_column(titles[at], overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[at].text, row[at].style) for at in shown))
    console.print(table)
    left_out = ", ".join(titles[at] for at in filled if at not in shown)
    if left_out:
        note(f"too narrow for {left_out}; | less -S shows all")


def fitting(columns: Sequence[int], widths: Sequence[int], width: int) -> Sequence[int]:
    """The columns that fit into `width`, the last ones left out first, the first few never. Pure."""
    shown = list(columns)
    while len(shown) > KEPT and sum(widths[at] + GAP for at in shown) - GAP > width:
        shown.pop()
    return shown


def _ansi(cell: Cell) -> str:
    code = _COLOURS.get(cell.style)
    return f"\x1b[{code}m{cell.text}\x1b[0m" if code else cell.text


def _write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise PipeClosed("nobody reads standard output any more") from None
