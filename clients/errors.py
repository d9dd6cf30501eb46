"""What the clients can raise, below `adsum.events.errors.AdsumError`.

AdsumError
├── NotLoaded               a directory was asked before it knew anything: unknown, not empty
├── NobodyToCall            a selection had nobody to pick
│   ├── NoneRegistered      no instance is registered at all
│   └── NoneRoutable        some are, and none of them is to be called now
├── Unreachable             nobody answers at a peer's address; nothing was sent
│   └── NotItself           somebody else does
├── LifeEnded               a registration is over, its block was left
│   ├── Superseded          another process registered the same instance id later
│   ├── Removed             an operator removed the instance: stay away
│   └── Expired             a lease is over; `how` it ended
└── BrokerUnavailable
    └── Unacknowledged
        └── Unconfirmed     a lease was asked for, and nobody said in time whether it is there: ask again with it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from adsum.events.errors import AdsumError, Unacknowledged
from adsum.events.names import Key

if TYPE_CHECKING:
    from .leases import Lease

__all__ = [
    "Expired",
    "How",
    "LifeEnded",
    "NobodyToCall",
    "NoneRegistered",
    "NoneRoutable",
    "NotItself",
    "NotLoaded",
    "Removed",
    "Superseded",
    "Unconfirmed",
    "Unreachable",
]

How: TypeAlias = Literal["expired", "superseded", "removed", "deregistered", "lost"]


class NotLoaded(AdsumError):
    """The directory has not been loaded yet, so it cannot tell who is there. It goes on trying by itself."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the directory of {what} is not loaded yet: who is there is unknown, which is not nobody")


class NobodyToCall(AdsumError):
    """A selection had nobody to pick. `what` names the service; the directory that says so is loaded."""

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        super().__init__(f"nobody to call of {what}: {why}")


class NoneRegistered(NobodyToCall):
    """No instance is registered at all, whatever is asked of it."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "no instance is registered")


class NoneRoutable(NobodyToCall):
    """Instances are registered, and none of them is to be called now. `reasons`: why not, and how many each."""

    def __init__(self, what: str, reasons: Mapping[str, int]) -> None:
        self.reasons = dict(reasons)
        counted = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        super().__init__(what, f"none of the {sum(reasons.values())} registered will do: {counted}")


class Unreachable(AdsumError):
    """Nothing of a call was sent to the instance `key`: there is no connection. The cause is the protocol's error."""

    def __init__(self, key: Key, address: str, why: str) -> None:
        self.key, self.address = key, address
        super().__init__(f"{key} at {address} cannot be reached: {why}")


class NotItself(Unreachable):
    """Somebody else answers there, so it is not called. `answered`: who says it is, "" where it does not say."""

    def __init__(self, key: Key, address: str, answered: str) -> None:
        self.answered = answered
        who = f"{answered[:200]!r} answers there" if answered else "who answers there does not say who it is"
        super().__init__(key, address, who)


class LifeEnded(AdsumError):
    """A registration is over; nothing more can be said of it. `term` is the life that ended."""

    def __init__(self, key: Key, term: str, why: str = "its block was left") -> None:
        self.key, self.term, self.why = key, term, why
        super().__init__(f"{key}: {why}")


class Superseded(LifeEnded):
    """Another process registered the same instance id later; `by` is its term. The later one wins."""

    def __init__(self, key: Key, term: str, by: str) -> None:
        self.by = by
        super().__init__(key, term, f"superseded by a later registration of the same id (term {by})")


class Removed(LifeEnded):
    """An operator, `by`, removed the instance for `reason`. It must not come back by itself."""

    def __init__(self, key: Key, term: str, by: str, reason: str) -> None:
        self.by, self.reason = by, reason
        told = f": {reason}" if reason else ""
        super().__init__(key, term, f"removed by operator {by or '(unnamed)'}{told}")


class Expired(LifeEnded):
    """The life of a lease is over: it is not renewed any more, nothing brings it back. Register again for another one.

    `how` it ended: "expired" (nobody renewed it in time), "superseded" (a later registration of the id has it),
    "removed" (by an operator: stay away), "deregistered" (its own goodbye), "lost" (the log does not know it any more,
    as after an older copy of it was put back).
    """

    def __init__(self, key: Key, term: str, how: How, why: str) -> None:
        self.how = how
        super().__init__(key, term, why)


class Unconfirmed(Unacknowledged):
    """A lease was asked for, and the broker did not say in time whether it is there.

    `lease` is that lease: renewing it asks again, for the same life; deregistering it gives it up. Should it still be
    on its way then, it expires by itself.
    """

    def __init__(self, lease: Lease, reason: str) -> None:
        self.lease = lease
        super().__init__(f"{lease.key}: not known to be registered: {reason}")
