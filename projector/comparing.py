"""Holding what a catalog says against what the fold makes of the log, row by row, as both are read. Pure.

Of each table the first difference is kept, and from then on no more of it is compared.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

from adsum.events.tools import Difference

from .queries import load_queries
from .rows import BatchRows, Row

__all__ = ["HistoryComparison", "RowsComparison", "columns", "differs", "is_alike", "shown"]

Order: TypeAlias = Callable[[Row], Any]

REFUSED = "the catalog refuses it: "
"""How the reason of a rejected message begins that a database did not take; the rest is that database's own word."""
ENDED = slice(3, 6)
LONGEST = 200


def columns(table: str) -> tuple[str, ...]:
    """The names of a table's columns as they stand in a row, which is the same in both dialects."""
    query: str = getattr(load_queries("sqlite"), f"all_{table}")
    return tuple(name.strip() for name in query.removeprefix("SELECT").partition("FROM")[0].split(","))


def is_alike(column: str, expected: object, found: object, as_text: bool) -> bool:
    """Whether two values say the same; `as_text`: JSON stands there as it was written."""
    if expected == found and type(expected) is type(found):
        return True
    if column == "reason" and isinstance(expected, str) and isinstance(found, str):
        return expected.startswith(REFUSED) and found.startswith(REFUSED)
    if column == "description" and not as_text and isinstance(expected, str) and isinstance(found, str):
        return bool(_parsed(expected) == _parsed(found))
    return False


def shown(value: object) -> str:
    """A value as people are told of it."""
    if isinstance(value, bytes):
        return value.hex() if len(value) == 32 else value.decode(errors="backslashreplace")
    return str(value)


class RowsComparison:
    """The rows of one table as they are read, against those that are expected in the same order.

    `order` is what the rows are in the order of, and what names one; rows whose order is below `first` do not count.
    """

    def __init__(
        self, table: str, rows: AsyncIterator[list[Row]], *, order: Order, first: Any = None, as_text: bool
    ) -> None:
        self.difference: Difference | None = None
        self._table, self._rows, self._order, self._first, self._as_text = table, rows, order, first, as_text
        self._columns = columns(table)
        self._chunk: list[Row] = []
        self._at = 0

    async def expect(self, expected: Row, but: slice = slice(0, 0)) -> Row | None:
        """The next row has to say this, `but` for some columns; that row, None once there is a difference."""
        if self.difference is not None or (self._first is not None and self._order(expected) < self._first):
            return None
        found = await self._next()
        wanted = self._order(expected)
        if found is None or self._order(found) > wanted:
            self._differs(wanted, "", "there is a row", "none")
            return None
        if self._order(found) < wanted:
            self._differs(self._order(found), "", "there is no row", self._told(found))
            return None
        self._at += 1
        if found != expected:
            self._compare(expected, found, but)
        return found if self.difference is None else None

    async def end(self) -> None:
        """No more is expected."""
        if self.difference is None and (found := await self._next()) is not None:
            self._differs(self._order(found), "", "there is no row", self._told(found))

    def _compare(self, expected: Row, found: Row, but: slice) -> None:
        left_out = range(*but.indices(len(expected)))
        for at, column in enumerate(self._columns):
            if at not in left_out and not is_alike(column, expected[at], found[at], self._as_text):
                self._differs(self._order(expected), column, shown(expected[at]), shown(found[at]))
                return

    def _differs(self, place: object, column: str, expected: str, found: str) -> None:
        self.difference = differs(self._table, place, column, expected, found)

    def _told(self, row: Row) -> str:
        text = ", ".join(f"{name} {shown(value)}" for name, value in zip(self._columns, row, strict=True))
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"

    async def _next(self) -> Row | None:
        """The row that is to be looked at; it stays where it is."""
        while True:
            if self._at >= len(self._chunk):
                self._chunk, self._at = await anext(self._rows, []), 0
                if not self._chunk:
                    return None
            found = self._chunk[self._at]
            if self._first is None or self._order(found) >= self._first:
                return found
            self._at += 1


class HistoryComparison:
    """The versions: that a row is right is known only once its version ended, so what open ones say is kept until then.

    `complete_from`: versions that ended before may have been removed. They are not looked at, and those that held just
    before are compared once the fold has come so far (`reached`).
    """

    def __init__(self, rows: AsyncIterator[list[Row]], complete_from: int, as_text: bool) -> None:
        kept = _ended_from(rows, complete_from) if complete_from > 1 else rows
        self._rows = RowsComparison("history", kept, order=lambda row: row[0], as_text=as_text)
        self._open: dict[int, Row] = {}
        self._found: dict[int, Row] = {}
        self._begun = complete_from <= 1
        self._ends: list[Difference] = []

    @property
    def difference(self) -> Difference | None:
        """The first one."""
        found = [*self._ends[:1], *([self._rows.difference] if self._rows.difference else [])]
        return min(found, key=lambda one: int(one.place), default=None)

    async def take(self, rows: BatchRows) -> None:
        """The next batch of the fold."""
        for began, *end in rows.ended:
            self._end(began, tuple(end))
        for row in rows.begun:
            if row[ENDED.start] is None:
                self._open[row[0]] = row
            if self._begun:
                await self._expect(row)

    async def reached(self) -> None:
        """The fold stands just before the revision from which on the catalog is complete."""
        self._begun = True
        for _, row in sorted(self._open.items()):
            await self._expect(row)

    async def end(self) -> None:
        """The fold stands where the catalog does: what is open has no end."""
        if not self._begun:
            await self.reached()
        await self._rows.end()
        for began in list(self._open):
            self._end(began, (None, None, None))

    async def _expect(self, row: Row) -> None:
        if row[ENDED.start] is not None:
            await self._rows.expect(row)
        elif (found := await self._rows.expect(row, but=ENDED)) is not None:
            self._found[row[0]] = found

    def _end(self, began: int, end: Row) -> None:
        """What was open ends so."""
        del self._open[began]
        found = self._found.pop(began, None)
        if found is None or found[ENDED] == end:
            return
        for column, expected, said in zip(columns("history")[ENDED], end, found[ENDED], strict=True):
            if expected != said:
                self._ends.append(differs("history", began, column, shown(expected), shown(said)))
                self._ends.sort(key=lambda one: int(one.place))
                return


def differs(table: str, place: object, column: str, expected: str, found: str) -> Difference:
    """A difference of a catalog."""
    named = "/".join(place) if isinstance(place, tuple) else str(place)
    return Difference(part="catalog", table=table, place=named, field=column, expected=expected, found=found)


async def _ended_from(rows: AsyncIterator[list[Row]], revision: int) -> AsyncIterator[list[Row]]:
    """Without the versions that ended before a revision."""
    async for chunk in rows:
        kept = [row for row in chunk if row[ENDED.start] is None or row[ENDED.start] >= revision]
        if kept:
            yield kept


def _parsed(text: str) -> Any:
    """The value of JSON. PostgreSQL writes numbers in its own way: all are compared as floats."""
    try:
        return json.loads(text, parse_int=float)
    except ValueError:
        return text
