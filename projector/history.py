"""Questions about the past, answered from a catalog: the same answers whichever database it is in.

An answer is a function of the log up to the revision it is for. It is made of a few short reads, and none of them can
mix two states: up to a revision that is folded nothing in the catalog changes any more but by what removes history or
puts another log in its place, and whether that happened meanwhile is looked at last.

Pages are bounded in rows, in bytes (they travel in one message) and in how much of the catalog is read for one: a page
whose filter finds nothing in its part may be empty and not the last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from adsum.events.description import Description
from adsum.events.errors import BeforeLog, NoLongerKept, NotYet, QuestionRefused
from adsum.events.questions import (
    MOST_ROWS,
    EventsAsked,
    Logged,
    Moment,
    Page,
    Version,
    VersionsAsked,
    WorldAsked,
    check_question,
)

from .catalog import Catalog
from .errors import CatalogUnavailable
from .rows import Row

__all__ = ["Extent", "History"]

T = TypeVar("T", Version, Logged)
A = TypeVar("A", VersionsAsked, EventsAsked)
Read: TypeAlias = Callable[[A, int, int, int], Awaitable[tuple[list[T], int]]]
"""Reads, for what is asked between two revisions, the items of a page of so many bytes and its `next`."""

ROOM = 900_000
"""Bytes of the items of a page; a broker takes messages of a megabyte unless it is told otherwise."""
SPAN = 100_000
"""Revisions that are looked through for one page, so that none takes long whatever it filters."""
RECENT = 10_000
"""Events among which a time is looked for first."""
PATIENCE = 1.5
"""Seconds for which a revision that is not folded yet is waited for."""
LOOK_AGAIN = 0.05
AHEAD = 5.0
"""Seconds by which a broker's clock may be ahead of the one of this machine."""

_encode = msgspec.json.Encoder().encode
_describe: Callable[[str], Description] = msgspec.json.Decoder(Description).decode


class Extent(NamedTuple):
    """What of which log the catalog holds. `head` is the running hash at `revision`."""

    epoch: str
    revision: int
    head: bytes
    complete_from: int


class History:
    """Answers from one catalog. `clock`: seconds since 1970, for the one question whether a time is in the future."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        clock: Callable[[], float] = time.time,
        patience: float = PATIENCE,
        span: int = SPAN,
        recent: int = RECENT,
    ) -> None:
        self._catalog, self._clock = catalog, clock
        self._patience, self._span, self._recent = patience, span, recent

    async def extent(self) -> Extent:
        """How far the catalog goes. Raises CatalogUnavailable, also for one that was never bound to a log."""
        rows = await self._catalog.rows("extent")
        if not rows:
            raise CatalogUnavailable(f"the catalog {self._catalog.name} has not folded any log yet")
        epoch, revision, head, complete_from = rows[0]
        return Extent(epoch, revision, bytes(head), complete_from)

    async def versions(self, asked: VersionsAsked | WorldAsked, room: int = ROOM) -> Page[Version]:
        """A page of versions. Raises InvalidValue, QuestionRefused and those below it, CatalogUnavailable."""
        check_question(asked)
        if isinstance(asked, WorldAsked):
            asked = VersionsAsked(
                namespace=asked.namespace,
                service=asked.service,
                id=asked.id,
                since=asked.at,
                until=asked.at,
                after=asked.after,
                limit=asked.limit,
            )
        return await self._page(asked, self._versions, room)

    async def events(self, asked: EventsAsked, room: int = ROOM) -> Page[Logged]:
        """A page of events. Raises what `versions` raises."""
        check_question(asked)
        return await self._page(asked, self._events, room)

    async def _page(self, asked: A, read: Read[A, T], room: int) -> Page[T]:
        while True:
            extent = await self._reached(asked)
            since, until = await self._bounds(asked, extent)
            items, following = await read(asked, since, until, room)
            if _same_history(extent, await self.extent()):
                return Page(
                    epoch=extent.epoch,
                    revision=extent.revision,
                    complete_from=extent.complete_from,
                    since=since,
                    until=until,
                    items=tuple(items),
                    next=following,
                )

    # ---- moments

    async def _reached(self, asked: VersionsAsked | EventsAsked) -> Extent:
        """The extent, once it reaches the revisions that are asked about; they are waited for. Raises NotYet."""
        wanted = max(asked.since.revision or 0, asked.until.revision or 0)
        deadline = time.monotonic() + self._patience
        while True:
            extent = await self.extent()
            if extent.revision >= wanted:
                return extent
            if time.monotonic() > deadline:
                stands = f"the catalog {self._catalog.name} stands at revision {extent.revision}"
                raise NotYet(f"revision {wanted} is in the future, or not folded yet: {stands}")
            await asyncio.sleep(LOOK_AGAIN)

    async def _bounds(self, asked: VersionsAsked | EventsAsked, extent: Extent) -> tuple[int, int]:
        """The revisions that the two moments come to."""
        until = await self._resolve(asked.until, extent)
        since = until if asked.since == asked.until else await self._resolve(asked.since, extent)
        first = _first_known(asked, extent)
        if asked.since.revision == 0 and until is not None and until >= first:
            since = first
        for moment, revision in ((asked.since, since), (asked.until, until)):
            if first > 0 and (revision is None or revision < first):
                told = f"the catalog is complete from revision {extent.complete_from} on, what was before was removed"
                raise NoLongerKept(f"{_told(moment)}: {told}")
        if until is None or (until == 0 and extent.revision > 0):
            raise BeforeLog(f"nothing was logged at {_told(asked.until)} or before: {await self._beginning()}")
        since = since or 0  # before the log there was nothing
        if since > until:
            raise QuestionRefused(f"since (revision {since}) must not be after until (revision {until})")
        return since, until

    async def _resolve(self, moment: Moment, extent: Extent) -> int | None:
        """The revision of a moment; None where nothing that is kept is so old. Raises NotYet."""
        if moment.time is None:
            return extent.revision if moment.revision is None else moment.revision
        now = self._clock()
        if moment.time > now + AHEAD:
            raise NotYet(f"{_told(moment)} is in the future: it is {_shown(now)} here")
        if moment.time < 0:
            return None
        ((found,),) = await self._catalog.rows("revision_at", self._catalog.stamp(moment.time), self._recent)
        return None if found is None else min(int(found), extent.revision)

    async def _beginning(self) -> str:
        rows = await self._catalog.rows("first_logged")
        if not rows:
            return "the log is empty"
        return f"the log begins at revision {rows[0][0]}, {_shown(self._catalog.seconds(rows[0][1]))}"

    # ---- reading

    async def _versions(self, asked: VersionsAsked, since: int, until: int, room: int) -> tuple[list[Version], int]:
        names, limit = (asked.namespace, asked.service, asked.id), min(asked.limit, MOST_ROWS)
        if all(names):
            upper = until
            rows = await self._catalog.rows("versions_of_instance", asked.after, upper, since, *names, limit)
        else:
            ((first,),) = await self._catalog.rows("next_began", asked.after)
            upper = self._upper(first, until)
            values = (asked.after, upper, since, *names, limit)
            if until - since < self._span:
                rows = await self._catalog.rows("versions_at", *values)
            else:
                rows = await self._catalog.rows("versions_between", *values)
        versions = (self._version(row, until) for row in rows)
        return _cut(versions, len(rows) == limit, upper, until, room, lambda version: version.began_revision)

    async def _events(self, asked: EventsAsked, since: int, until: int, room: int) -> tuple[list[Logged], int]:
        names, limit = (asked.namespace, asked.service, asked.id), min(asked.limit, MOST_ROWS)
        types = f",{','.join(asked.types)}," if asked.types else ""
        after = max(asked.after, since)
        if all(names):
            upper = until
            rows = await self._catalog.rows("logged_of_instance", after, upper, types, *names, limit)
        else:
            ((first,),) = await self._catalog.rows("next_logged", after)
            upper = self._upper(first, until)
            rows = await self._catalog.rows("logged", after, upper, types, *names, limit)
        return _cut(map(self._logged, rows), len(rows) == limit, upper, until, room, lambda logged: logged.revision)

    def _upper(self, first: int | None, until: int) -> int:
        """How far is looked from the first row there is: revisions may have gaps, and nothing is found in them."""
        return until if first is None else min(until, first - 1 + self._span)

    def _version(self, row: Row, until: int) -> Version:
        namespace, service, id, term, began, began_at, began_by, ended, ended_at, ended_by, *state = row
        liveness, health, mode, reason, registered_at, description = state
        over = ended is not None and ended <= until
        seconds = self._catalog.seconds
        return Version(
            namespace=namespace,
            service=service,
            id=id,
            term=term,
            began_revision=began,
            began_at=seconds(began_at),
            began_by=began_by,
            ended_revision=ended if over else None,
            ended_at=seconds(ended_at) if over else None,
            ended_by=ended_by if over else None,
            liveness=liveness,
            health=health,
            mode=mode,
            reason=reason,
            registered_at=seconds(registered_at),
            description=_describe(description),
        )

    def _logged(self, row: Row) -> Logged:
        revision, at, namespace, service, id, payload = row
        return Logged(
            revision=revision,
            time=self._catalog.seconds(at),
            namespace=namespace,
            service=service,
            id=id,
            event=msgspec.Raw(payload),
        )


def _cut(
    found: Iterable[T], more: bool, upper: int, until: int, room: int, revision: Callable[[T], int]
) -> tuple[list[T], int]:
    """(what of the items found has room, at least one; what the next page is asked after, 0 if this was the last).

    `more`: there may be others up to `upper`, which is how far was looked of what reaches to `until`.
    """
    items: list[T] = []
    for item in found:
        room -= len(_encode(item)) + 1
        if items and room < 0:
            return items, revision(items[-1])
        items.append(item)
    reached = revision(items[-1]) if more and items else upper
    return items, reached if reached < until else 0


def _first_known(asked: VersionsAsked | EventsAsked, extent: Extent) -> int:
    """The first revision that may be asked about; 0: nothing was removed. What was said is asked above one. Pure."""
    if extent.complete_from <= 1:
        return 0
    return extent.complete_from - 1 if isinstance(asked, EventsAsked) else extent.complete_from


def _same_history(before: Extent, after: Extent) -> bool:
    """Whether nothing was removed and no other log came between two looks. Pure."""
    return (before.epoch, before.complete_from) == (after.epoch, after.complete_from)


def _told(moment: Moment) -> str:
    if moment.time is not None:
        return _shown(moment.time)
    return "now" if moment.revision is None else f"revision {moment.revision}"


def _shown(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} seconds since 1970"
