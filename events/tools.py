"""What the command `adsum` has done by the projector, where that is installed: entry points of the group `adsum.tools`.

The clients import no projector. They load a tool by its name, and hold it for one of the Protocols below.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from .broker import Broker
from .signals import Instance

__all__ = [
    "GROUP",
    "Compared",
    "Difference",
    "Look",
    "Part",
    "Progress",
    "Rebuild",
    "Rebuilt",
    "Shown",
    "Verified",
    "Verify",
    "VerifyAlone",
]

GROUP = "adsum.tools"
Part: TypeAlias = Literal["log", "catalog", "topology", "cache"]
"""What is compared with the log; the log itself with a hash that somebody kept."""


class Progress(Protocol):
    """Hears how far a tool is: `done` of about `total` messages of the log."""

    def __call__(self, done: int, total: int) -> None:
        """Called often; must be quick."""


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a rebuild: the catalog stands at `revision` of the log of `epoch`, with the running hash `head`.

    `events` were folded now, in `seconds`, beginning after revision `since`; `rejected` counts all that is set aside.
    """

    catalog: str
    epoch: str
    since: int
    revision: int
    head: str
    events: int
    rejected: int
    seconds: float
    rate: float


class Rebuild(Protocol):
    """Folds the log into the catalog of a DSN, up to its end as it is now or up to revision `until`.

    `base`: exports, in order, of what was removed from the log. A catalog that a rebuild began is gone on with.
    Raises AdsumError: the broker is away, the catalog is another log's or in use, the log lacks its beginning.
    """

    async def __call__(
        self, broker: Broker, dsn: str, *, until: int | None, base: Sequence[str], progress: Progress
    ) -> Rebuilt:
        """Do it."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What a cache of one namespace shows now. `unusable`: why that says nothing."""

    namespace: str
    instances: tuple[Instance, ...] = ()
    unusable: str = ""


Look: TypeAlias = Callable[[], Awaitable[Shown]]
"""A look at a live cache."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference of its kind. `table` of the catalog, or empty; `place`: the revision or instance it is at;
    `field`: the column, or empty where the whole is too much or missing."""

    part: Part
    table: str
    place: str
    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        where = " ".join(text for text in (self.part, self.table, self.place, self.field) if text)
        return f"{where}: the log says {self.expected}, found {self.found}"


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What was held against the log: which part, and just what of it."""

    part: Part
    what: str


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What a verification found. `head` is the running hash of the log at `revision`, in hex, for safekeeping.

    `compared` and `not_compared` say what was held against the log, and what was not and why.
    """

    epoch: str
    revision: int
    head: str
    messages: int
    rejected: int
    seconds: float
    rate: float
    compared: tuple[Compared, ...]
    not_compared: tuple[str, ...]
    differences: tuple[Difference, ...]


class Verify(Protocol):
    """Folds the log as a stream and compares what says to be its fold.

    `catalog`: a DSN. `head`: a running hash, in hex, and the revision at which the log had it, None: at some revision.
    `cache`: a look at a live cache. `base`: as for a rebuild. Raises AdsumError where something cannot be read.
    """

    async def __call__(
        self,
        broker: Broker,
        *,
        catalog: str | None,
        head: tuple[str, int | None] | None,
        cache: Look | None,
        base: Sequence[str],
        progress: Progress,
    ) -> Verified:
        """Do it."""


class VerifyAlone(Protocol):
    """Takes a catalog's own events for the log: whether its rows agree with one another and with a hash kept."""

    async def __call__(self, catalog: str, *, head: tuple[str, int | None] | None, progress: Progress) -> Verified:
        """Do it."""
