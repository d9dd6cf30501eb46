"""What the projector can raise, below `adsum.events.errors.AdsumError`.

AdsumError
├── Refusal                 the daemon must not go on; says the remedy
│   ├── LogChanged          the log is not the one that the catalog was folded from
│   ├── CatalogTooNew       a newer adsum wrote this catalog
│   ├── CatalogInUse        another daemon has this folder or database file
│   └── BrokerFailed        the embedded broker did not start, or died
├── CatalogUnavailable      the database did not answer; the same call may work later
├── CatalogRefused          the database refuses this batch, whenever it is tried
├── CheckpointMoved         another writer folded this batch; step down
└── Fenced                  another leader took the catalog; step down
"""

from __future__ import annotations

from adsum.events.errors import AdsumError

__all__ = [
    "BrokerFailed",
    "CatalogInUse",
    "CatalogRefused",
    "CatalogTooNew",
    "CatalogUnavailable",
    "CheckpointMoved",
    "Fenced",
    "LogChanged",
    "Refusal",
    "first_error",
]


class Refusal(AdsumError):
    """The daemon must not go on. The message says what is wrong and, after it, what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what, self.remedy = what, remedy
        super().__init__(f"{what}. {remedy}")


class LogChanged(Refusal):
    """The log is not the one that the catalog was folded from: another epoch, another or no event at the checkpoint."""


class CatalogTooNew(Refusal):
    """A newer adsum wrote this catalog."""


class CatalogInUse(Refusal):
    """Another daemon has this data folder or database file."""


class BrokerFailed(Refusal):
    """The embedded broker did not start, or died."""


class CatalogUnavailable(AdsumError):
    """The database did not answer or is busy; the same call may work later. A commit that was under way may stand."""


class CatalogRefused(AdsumError):
    """The database refuses this batch itself (a value it cannot hold), whenever it is tried; nothing was stored."""


class CheckpointMoved(AdsumError):
    """The checkpoint is not the expected one: another writer folded this batch. Nothing was stored."""


class Fenced(AdsumError):
    """The generation is not ours any more: another leader took the catalog. Nothing was stored."""


def first_error(error: BaseException) -> BaseException:
    """The first error inside nested groups: one that is not ours before all others, then a Refusal."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [first_error(inner) for inner in error.exceptions]
    return min(found, key=lambda inner: (isinstance(inner, AdsumError), not isinstance(inner, Refusal)))
