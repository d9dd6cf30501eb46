"""What a policy is, and what it chooses among."""

from __future__ import annotations

from collections.abc import Sequence

from adsum.events.description import Endpoint
from adsum.events.signals import Instance

from .outliers import Calls

__all__ = ["Picked", "Policy", "relative"]

LIGHTEST = 1e-6
"""Of the heaviest one: nobody counts as lighter."""


class Picked:
    """One who can be called: an instance, the endpoint of it that fits, and what this process has seen of that.

    A selection hands out the same object as long as the instance stays as it is.
    """

    __slots__ = ("calls", "endpoint", "instance", "name", "weight")

    def __init__(self, instance: Instance, endpoint: Endpoint, calls: Calls) -> None:
        self.instance, self.endpoint, self.calls, self.weight = instance, endpoint, calls, instance.weight
        self.name = f"{instance.service}/{instance.id}/{endpoint.name}"
        """The same in every process, and in every life of the instance."""

    def __repr__(self) -> str:
        return f"Picked({self.name} at {self.endpoint.address})"


class Policy:
    """Chooses among members. Each selection has its own policy object, which has no clock, no randomness and no input
    but what it is given.

    `update` comes before the first `pick` and whenever the members change, with at least one. All members have a weight
    above 0. A policy may keep what it has for members that stay: `calls` stays the same for the same endpoint and
    life, `name` also over lives.
    """

    taken = False
    """Whether a selection has it."""

    def update(self, members: Sequence[Picked], missing: Sequence[Instance]) -> None:
        """From now on choose among these. `missing`: who would be members, were they healthy."""
        raise NotImplementedError

    def pick(self, key: str | bytes | None) -> Picked:
        """The next one, in a time that does not grow with the number of members."""
        raise NotImplementedError

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """All, best first, as things stand; the first is whom `pick` would give, where that is not drawn by lot."""
        raise NotImplementedError

    def begun(self, calls: Calls) -> None:
        """A call of this selection began."""

    def ended(self, calls: Calls) -> None:
        """It ended, well or badly; perhaps one to somebody who is no member any more."""


def relative(members: Sequence[Picked]) -> list[float]:
    """The weights as parts of the heaviest: no sum of them is beyond what a float holds."""
    weights = [picked.weight for picked in members]
    heaviest = max(weights)
    if min(weights) < LIGHTEST * heaviest:
        weights = [max(weight, LIGHTEST * heaviest) for weight in weights]
    return [weight / heaviest for weight in weights]
