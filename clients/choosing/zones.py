"""Preferring the caller's own zone, and spilling over to others when that has too few who are fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from adsum.events.errors import InvalidValue
from adsum.events.numbers import check_number
from adsum.events.signals import Instance

from .outliers import Calls
from .policy import Picked, Policy
from .ring import BITS, position
from .turns import RoundRobin

__all__ = ["ZonePreferring"]


class ZonePreferring(Policy):
    """Those in `zone` first, chosen among by a policy that `inner` makes; the others by another one.

    How much stays is Envoy's rule for priority levels ("Priority levels", "Overprovisioning factor"): as long as
    `factor` times the healthy part of the zone is the whole, everything; with 1.4, while 72 % are healthy. Below
    that the part that is missing goes to the other zones, spread evenly over the picks, so that the few who are left
    do not bear the load of all. With a key, always the same keys stay.
    """

    def __init__(self, zone: str, inner: Callable[[], Policy] = RoundRobin, *, factor: float = 1.4) -> None:
        if not zone or not isinstance(zone, str):
            raise InvalidValue("zone", zone, "must name the zone of the caller")
        self.zone, self._factor = zone, check_number("factor", factor, "must be above 0", lambda number: number > 0)
        self._near, self._far = _made(inner), _made(inner)
        if self._near is self._far:
            raise InvalidValue("inner", inner, "must make another policy each time")
        self._staying = 1.0
        """The part that stays in the zone."""
        self._near_members: list[Picked] = []
        self._far_members: list[Picked] = []
        self._mixed = False
        self._owed = 0.0

    def update(self, members: Sequence[Picked], missing: Sequence[Instance]) -> None:
        """See Policy."""
        near: list[Picked] = []
        far: list[Picked] = []
        for picked in members:
            (near if picked.instance.zone == self.zone else far).append(picked)
        if near and near != self._near_members:
            self._near.update(near, ())
        if far and far != self._far_members:
            self._far.update(far, ())
        self._near_members, self._far_members = near, far
        self._mixed = bool(near and far)
        if not self._mixed:
            self._staying = 1.0 if near else 0.0
            return
        ill = sum(instance.zone == self.zone for instance in missing)
        self._staying = min(1.0, self._factor * len(near) / (len(near) + ill))

    def pick(self, key: str | bytes | None) -> Picked:
        """See Policy."""
        stays = self._stays(key)
        if key is None:
            self._owed += self._staying - stays
        return (self._near if stays else self._far).pick(key)

    def ordered(self, key: str | bytes | None) -> list[Picked]:
        """The zone's own, then the others; the other way round where it is another zone's turn."""
        first, second = (self._near, self._far) if self._stays(key) else (self._far, self._near)
        return first.ordered(key) + (second.ordered(key) if self._mixed else [])

    def begun(self, calls: Calls) -> None:
        """See Policy."""
        self._near.begun(calls)
        self._far.begun(calls)

    def ended(self, calls: Calls) -> None:
        """See Policy."""
        self._near.ended(calls)
        self._far.ended(calls)

    def _stays(self, key: str | bytes | None) -> bool:
        if self._staying in (0.0, 1.0):
            return self._staying == 1.0
        if key is not None:
            return position(key, b"zone") < self._staying * (1 << BITS)  # another place than in the ring of `inner`
        return self._owed + self._staying >= 1


def _made(inner: Callable[[], Policy]) -> Policy:
    made = inner() if callable(inner) else None
    if not isinstance(made, Policy):
        raise InvalidValue("inner", inner, "must make a policy when it is called, as the class of one does")
    return made
