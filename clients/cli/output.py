"""What the command prints: a table in a terminal, aligned text without colour in a pipe, JSON on request.

Standard output carries the answer, standard error whatever else there is to say.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from adsum.events.errors import AdsumError

__all__ = [
    "EMPTY",
    "SHORTENED",
    "Cell",
    "Column",
    "Layout",
    "Lines",
    "PipeClosed",
    "arrange",
    "brief",
    "clean",
    "fitting",
    "hung_up",
    "iso",
    "note",
    "sentence",
    "show_blank",
    "show_json",
    "show_json_lines",
    "show_line",
    "show_table",
]

_PASSWORD = re.compile(r"(?<=://)[^@/\s]+@")
GAP = 2
KEPT = 4
ROOM = 30
"""The least width in which a wrapped last column can still be read."""
BELOW = 4
_COLOURS = {"bold": 1, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
SHORTENED = "…"
"""What stands in an id for what was left out of it."""
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


class Column(NamedTuple):
    """A column of Lines: its least width, how a narrow terminal shortens it, whether it may be left out there."""

    title: str
    least: int = 0
    shorten: Callable[[str], str] | None = None
    spare: bool = False


class Layout(NamedTuple):
    """How the columns before the last one fit: which are shortened, which are shown, whether the last is below."""

    shortened: frozenset[int]
    shown: tuple[int, ...]
    below: bool


class Lines:
    """A table whose end is not known yet: rows are written at once, the titles before the first of them.

    A pipe gets everything whole, a row a line. A terminal gets what fits: the last column wrapped under itself, then
    some columns shortened, then the last column on lines of its own, then the spare columns left out; and a note.
    `room`: the least width for the last column, for which others are shortened.
    """

    def __init__(self, columns: Sequence[Column], room: int = ROOM) -> None:
        self._columns, self._room = columns, room
        self._whole = [max(len(column.title), column.least) for column in columns]
        self._short = [
            max(len(column.title), len(column.shorten("x" * column.least))) if column.shorten else whole
            for column, whole in zip(columns, self._whole, strict=True)
        ]
        self._begun = not any(column.title for column in columns)  # a table without titles has begun already
        self._noted = ""

    def show(self, rows: Iterable[Sequence[Cell]]) -> None:
        """Write some rows."""
        cleaned = [[Cell(clean(cell.text), cell.style) for cell in row] for row in rows]
        self._measure(cleaned)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        layout = arrange(self._columns, self._whole, self._short, width, self._room)
        self._tell(layout)
        coloured = width is not None and not os.environ.get("NO_COLOR")
        lines = [line for row in cleaned for line in self._lines(row, layout, width, coloured)]
        if cleaned and not self._begun:
            self._begun = True
            lines.insert(0, self._heading(layout, coloured))
        _write("".join(f"{line}\n" for line in lines).encode())

    def _measure(self, rows: Sequence[Sequence[Cell]]) -> None:
        for row in rows:
            for at, (column, cell) in enumerate(zip(self._columns, row, strict=True)):
                self._whole[at] = max(self._whole[at], len(cell.text))
                short = column.shorten(cell.text) if column.shorten else cell.text
                self._short[at] = max(self._short[at], len(short))

    def _tell(self, layout: Layout) -> None:
        short = " and ".join(self._columns[at].title for at in layout.shown if at in layout.shortened)
        out = " and ".join(column.title for at, column in enumerate(self._columns[:-1]) if at not in layout.shown)
        told = " and ".join([*([f"{short} in full"] if short else []), *([out] if out else [])])
        if told and told != self._noted:
            note(f"too narrow for {told}; | less -S shows all")
            self._noted = told

    def _heading(self, layout: Layout, coloured: bool) -> str:
        shown = [*layout.shown, *([] if layout.below else [len(self._columns) - 1])]
        widths = [*(self._width(at, layout) for at in shown[:-1]), 0]  # blanks after the last would take lines
        cells = [Cell(self._columns[at].title.ljust(width), "bold") for at, width in zip(shown, widths, strict=True)]
        return (" " * GAP).join(_ansi(cell) if coloured else cell.text for cell in cells)

    def _lines(self, row: Sequence[Cell], layout: Layout, width: int | None, coloured: bool) -> Iterator[str]:
        """One row: the last cell begins beside the others or below them."""
        cells = [
            Cell(self._text(row[at], at, layout).ljust(self._width(at, layout)), row[at].style) for at in layout.shown
        ]
        indent = BELOW if layout.below else sum(len(cell.text) + GAP for cell in cells)
        parts = textwrap.wrap(row[-1].text, max(1, width - indent)) if width is not None else [row[-1].text]
        if not layout.below:
            cells.append(Cell(parts.pop(0) if parts else "", row[-1].style))
        yield (" " * GAP).join(_ansi(cell) if coloured else cell.text for cell in cells).rstrip()
        for part in parts:
            yield " " * indent + (_ansi(Cell(part, row[-1].style)) if coloured else part)

    def _text(self, cell: Cell, at: int, layout: Layout) -> str:
        shorten = self._columns[at].shorten if at in layout.shortened else None
        return shorten(cell.text) if shorten else cell.text

    def _width(self, at: int, layout: Layout) -> int:
        return (self._short if at in layout.shortened else self._whole)[at]


def arrange(
    columns: Sequence[Column], whole: Sequence[int], short: Sequence[int], width: int | None, room: int = ROOM
) -> Layout:
    """What fits into a terminal of `width`, the last column apart; None is a pipe, into which all fits. Pure."""
    everyone = tuple(range(len(columns) - 1))
    if width is None:
        return Layout(frozenset(), everyone, False)
    can = [at for at in everyone if columns[at].shorten and short[at] < whole[at]]
    steps = [frozenset(can[:count]) for count in range(len(can) + 1)]
    for need, below in ((min(room, whole[-1]), False), (-GAP, True)):
        for step in steps:
            if sum((short if at in step else whole)[at] + GAP for at in everyone) + need <= width:
                return Layout(step, everyone, below)
    shown = list(everyone)
    for at in (at for at in reversed(everyone) if columns[at].spare):
        if sum(short[at] + GAP for at in shown) - GAP > width:
            shown.remove(at)
    return Layout(steps[-1], tuple(shown), True)


def hung_up() -> bool:
    """Whether nobody can read standard output any more."""
    if not hasattr(select, "poll"):
        return False
    poller = select.poll()
    try:
        poller.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))


def show_blank() -> None:
    """An empty line between two parts."""
    _write(b"\n")


def show_line(text: str) -> None:
    """One line of the answer, above a table."""
    _write(f"{clean(text)}\n".encode())


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
    return id if len(id) <= 13 else f"{id[:6]}{SHORTENED}{id[-6:]}"


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
