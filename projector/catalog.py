"""The catalog: what the projector needs of a database. SQLite and PostgreSQL each fulfil this Protocol whole.

Every write is one transaction. The checkpoint fences the fold (compare-and-set on sequence and event id), the
generation fences what the leader keeps beside it (clock, heard values, announced).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from adsum.events.chain import GENESIS
from adsum.events.names import Key

from .fold import Batch
from .queries import Question
from .record import Record
from .rows import Row

__all__ = [
    "FORGOTTEN_TOGETHER",
    "REMEDY",
    "Catalog",
    "Checkpoint",
    "Heard",
    "Held",
    "Observations",
    "Observed",
    "Store",
]

REMEDY = "start the database or mend what it names; nothing is lost, and all goes on by itself once it answers"
"""What an operator does about a catalog that takes nothing."""
FORGOTTEN_TOGETHER = 2000
"""Rows a transaction when what was trimmed is forgotten, so that no event waits long behind them."""


class Checkpoint(NamedTuple):
    """The last message that was folded: its epoch, sequence and identity (`fold.identify`); sequence 0: none yet.

    `head` is the running hash up to there (see `chain`).
    """

    epoch: str
    sequence: int
    event_id: str
    head: bytes = GENESIS


class Heard(NamedTuple):
    """The last heartbeat of a life that the reaper read: its counter, and the observed clock at that moment."""

    term: str
    counter: int
    at: float


class Held(NamedTuple):
    """A service whose mass expiry the guard holds back, since a value of the observed clock."""

    namespace: str
    service: str
    since: float


class Observed(NamedTuple):
    """What a reaper continues from. `clock` is the observed clock, in seconds of time in which ticks were read."""

    clock: float
    heard: tuple[Heard, ...]
    held: tuple[Held, ...]
    announced: int


class Observations(NamedTuple):
    """What a reaper writes down: the clock, what was heard since the last time, terms that ended, all that is held."""

    clock: float
    heard: Sequence[Heard]
    ended: Sequence[str]
    held: Sequence[Held]
    announced: int


class Store(Protocol):
    """What folding needs of whatever keeps its batches. Each raises CatalogUnavailable if that does not answer."""

    name: str
    """How it is told to people: the DSN without its password."""

    async def checkpoint(self) -> Checkpoint | None:
        """Where the fold stands; None for a catalog that never folded anything."""

    async def folded(self, event_ids: Collection[str]) -> set[str]:
        """Those of these event ids that are in the catalog's events."""

    async def store(self, expected: Checkpoint, batch: Batch) -> Checkpoint:
        """Store a batch and move the checkpoint to its last message; the new checkpoint.

        Raises CheckpointMoved if the checkpoint is not `expected`, CatalogRefused if a value cannot be stored.
        """


class Catalog(Store, Protocol):
    """A database that holds current records, their history, the events, what was rejected, and the checkpoint.

    Every method raises CatalogUnavailable if the database does not answer; then nothing was stored, or, where the
    connection was lost during the commit, all of it: the checkpoint tells.
    """

    shared: bool
    """Whether other daemons may write it too (PostgreSQL); then only the leader does."""

    async def open(self) -> None:
        """Connect and migrate. Raises CatalogTooNew, CatalogInUse, Refusal for what will not open as it is."""

    async def begin(self, epoch: str) -> Checkpoint:
        """Bind a catalog that never folded anything to the log of this epoch; the checkpoint at sequence 0.

        Raises CheckpointMoved if it folded something.
        """

    async def records(self) -> list[Record]:
        """All live records, ordered by key. Read the checkpoint before them: a later one may be past them."""

    async def set_aside(self) -> int:
        """How many messages of the log were set aside (`rejected`)."""

    async def departures(self, keys: Iterable[Key]) -> dict[Key, tuple[str, int, str]]:
        """For keys that are gone: (term, sequence, cause) of the event that ended their last life."""

    async def take(self) -> int:
        """Begin a new generation of leadership; its number."""

    async def observed(self) -> Observed:
        """What the last leader (or, in a catalog of one's own, this daemon) wrote down with `observe`."""

    async def observe(self, generation: int, observations: Observations) -> None:
        """Write down what was observed. Raises Fenced if the generation is not the catalog's."""

    async def rows(self, query: Question, *values: object) -> list[Row]:
        """What a named query answers. It holds up no write, and no other method waits for it.

        Times in values and rows are spelled as the database does: see `stamp` and `seconds`.
        """

    def bulk(self) -> AbstractAsyncContextManager[None]:
        """A block in which more is stored than the catalog holds, and nothing but the checkpoint is asked of it.

        It may be cut off at any moment, and whoever opens the catalog next finds all of it in its place.
        """

    def stamp(self, seconds: float) -> object:
        """Seconds since 1970 as a value of a query. Raises CatalogRefused outside the years 1 to 9999."""

    def seconds(self, stamp: Any) -> float:
        """A time in a row as seconds since 1970."""

    async def forget(self, through: int) -> bool:
        """Remove some of the events up to this sequence and the versions that ended by then; False: all are gone.

        From the first call on the catalog is complete only from the next revision on.
        """

    @property
    def untidy(self) -> bool:
        """Whether so much was stored since the last `tidy` that it is time for it."""

    async def tidy(self) -> None:
        """Housekeeping that no write should wait for; called each second, and once it is `untidy`."""

    async def close(self) -> None:
        """Release connections and locks. Idempotent."""
