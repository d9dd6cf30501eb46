"""A catalog held against the fold of the log: every row of its tables up to where it stands, and its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from adsum.events.reader import Message
from adsum.events.tools import Difference

from .comparing import HistoryComparison, RowsComparison, differs, shown
from .folding import Folding
from .ledger import Ledger, Stands
from .rows import instance_rows
from .scratch import Folded

__all__ = ["Audit"]


class Audit:
    """Is told of the fold as it goes on: `before` something is folded, and what was `folded`; then `finish`.

    `trimmed`: up to there the log was trimmed, and the catalog may have forgotten what was; no more of it.
    """

    def __init__(self, ledger: Ledger, stands: Stands, epoch: str, trimmed: int) -> None:
        self._ledger, self._stands, self._epoch = ledger, stands, epoch
        self._most_forgotten = trimmed + 1
        self._complete_from = min(stands.complete_from, self._most_forgotten)
        self._end = stands.checkpoint.sequence
        first = self._complete_from if self._complete_from > 1 else None
        self._events, self._rejected = (
            RowsComparison(table, ledger.table(table), order=lambda row: row[0], first=first, as_text=ledger.as_text)
            for table in ("events", "rejected")
        )
        self._instances = RowsComparison(
            "instances", ledger.table("instances"), order=lambda row: row[:3], as_text=ledger.as_text
        )
        self._history = HistoryComparison(ledger.table("history"), self._complete_from, ledger.as_text)
        self._checkpoint: list[Difference] = []
        self._cut, self._finished = self._complete_from <= 1, False

    @property
    def told(self) -> str:
        """What was compared."""
        since = f"from revision {self._complete_from} " if self._complete_from > 1 else ""
        return f"catalog {self._ledger.name} {since}up to revision {self._end}"

    @property
    def differences(self) -> list[Difference]:
        """The first one of each table, in the order of the log; the checkpoint's last."""
        tables = (self._events, self._rejected, self._history)
        found = [each.difference for each in tables if each.difference is not None]
        found.sort(key=lambda one: int(one.place))
        return [*found, *([self._instances.difference] if self._instances.difference else []), *self._checkpoint]

    def parts(self, messages: list[Message]) -> list[list[Message]]:
        """These in parts, so that `before` is heard at the two revisions that matter."""
        parts: list[list[Message]] = []
        for cut in sorted({self._complete_from - 1, self._end}):
            parts.append([message for message in messages if message.sequence <= cut])
            messages = [message for message in messages if message.sequence > cut]
        return [part for part in (*parts, messages) if part]

    async def before(self, sequence: int, folding: Folding) -> None:
        """What was folded reaches to just before `sequence`."""
        if not self._cut and sequence >= self._complete_from:
            self._cut = True
            await self._history.reached()
        if not self._finished and sequence > self._end:
            await self.finish(folding)

    async def folded(self, folded: Sequence[Folded]) -> None:
        """These batches were folded."""
        if self._finished:
            return
        for _, rows in folded:
            for event in rows.events:
                await self._events.expect(event)
            for rejected in rows.rejected:
                await self._rejected.expect(rejected)
            await self._history.take(rows)

    async def finish(self, folding: Folding) -> None:
        """No more of the log is in the catalog."""
        if self._finished:
            return
        self._finished = True
        records = sorted(folding.records.values(), key=lambda record: record.key)
        for row in instance_rows(records, self._ledger.stamp):
            await self._instances.expect(row)
        for table in (self._events, self._rejected, self._instances, self._history):
            await table.end()
        self._compare_checkpoint(folding)

    def _compare_checkpoint(self, folding: Folding) -> None:
        if self._stands.complete_from > self._most_forgotten:
            most, claimed = f"{self._most_forgotten} at most", str(self._stands.complete_from)
            self._checkpoint.append(differs("checkpoint", "", "complete_from", most, claimed))
        expected = folding.checkpoint._replace(epoch=self._epoch)
        for field, wanted, found in zip(expected._fields, expected, self._stands.checkpoint, strict=True):
            if wanted != found:
                self._checkpoint.append(differs("checkpoint", "", field, shown(wanted), shown(found)))
                return
