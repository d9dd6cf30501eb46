"""A selection: those of a directory who may be called, and a policy that picks one of them.

Everything is worked out anew only when something changed: the directory hands out the same tuple until then, and the
outliers count their changes. So a pick costs the look at both, and what the policy does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection

from adsum.clients.errors import NoneRegistered, NoneRoutable
from adsum.events.errors import InvalidValue
from adsum.events.numbers import check_number
from adsum.events.signals import Instance

from .call import Call
from .filters import Filters
from .outliers import Outliers
from .policy import Picked, Policy

__all__ = ["Selection"]

STALE = "stale"


class _Seen:
    """What is made of one instance as long as it stays as it is. `why` it is not picked, if it is not."""

    __slots__ = ("instance", "picked", "why")

    def __init__(self, instance: Instance, picked: Picked | None, why: str) -> None:
        self.instance, self.picked, self.why = instance, picked, why


class Selection:
    """Made by `Directory.select`; make it once and keep it. Not for several threads.

    Never picked are those who are draining, in maintenance or critical, or weigh 0: that they say themselves, or a
    check found it. Silence and ejections (see Outliers) are guesses, and believed only within reason: when fewer than
    the part `panic` of those who serve are neither critical, stale nor ejected, ejections count no more, nor does
    staleness with `fail_open`. That is Envoy's rule ("Panic threshold": half by default, 0 turns it off), but for
    those who are never picked. With `fail_open` stale ones are picked, whatever `panic` is, when nobody else is left.

    `read`: the instances, the same tuple until something changes. `what`: their name in errors.
    """

    def __init__(
        self,
        read: Callable[[], tuple[Instance, ...]],
        what: str,
        filters: Filters,
        policy: Policy,
        outliers: Outliers,
        *,
        fail_open: bool = False,
        panic: float = 0.5,
    ) -> None:
        check_number("panic", panic, "must be from 0 (never) to 1", lambda part: 0 <= part <= 1)
        if not isinstance(policy, Policy):
            raise InvalidValue("policy", policy, "must be an object of a policy, such as RoundRobin()")
        if policy.taken:
            raise InvalidValue("policy", policy, "is that of another selection: each needs one of its own")
        policy.taken = True
        self.what, self.policy, self.outliers = what, policy, outliers
        self._read, self._filters, self._fail_open, self._panic = read, filters, fail_open, panic
        watches = type(policy).begun is not Policy.begun or type(policy).ended is not Policy.ended
        self._watching = policy if watches else None
        self._tuple: tuple[Instance, ...] | None = None
        self._changes, self._due = -1, math.inf
        self._seen: dict[int, _Seen] = {}
        self._members: tuple[Picked, ...] = ()
        self._missing: tuple[Instance, ...] = ()
        self._choose: Callable[[str | bytes | None], Picked] = self._nobody

    # ---- choosing

    def pick(self, key: str | bytes | None = None, *, avoid: Collection[Picked] = ()) -> Picked:
        """One to call. `key`: for policies that choose by it. `avoid`: who was tried already.

        Raises NoneRegistered, NoneRoutable, and NotLoaded while the directory knows nothing yet.
        """
        if (
            self._read() is not self._tuple
            or self._changes != self.outliers.changes
            or (self._due != math.inf and self._due <= self.outliers.clock())
        ):
            self._look_again()
        picked = self._choose(key)
        return self._another(key, avoid) if avoid and _among(picked, avoid) else picked

    def ordered(self, key: str | bytes | None = None) -> list[Picked]:
        """All who can be called, best first; the first counts as picked. Raises as `pick` does."""
        if not self.members:
            self._nobody(key)
        found = self.policy.ordered(key)
        self.policy.pick(key)
        return found

    @property
    def members(self) -> tuple[Picked, ...]:
        """All who can be called, in no particular order; none where `pick` raises NoneRegistered or NoneRoutable."""
        self.outliers.look()
        if self._read() is not self._tuple or self._changes != self.outliers.changes:
            self._look_again()
        return self._members

    # ---- telling how it went

    def begun(self, picked: Picked) -> Call:
        """A call begins; tell it how it ended, always: `call.succeeded()`, `failed()` or `abandoned()`."""
        return Call(self.outliers, picked.calls, self._watching, Exception)

    def calling(self, picked: Picked, blame: type[BaseException] | tuple[type[BaseException], ...] = Exception) -> Call:
        """A block in which one who was picked is called: `with selection.calling(picked): …`

        It failed if it raises what is to `blame` on the peer, and succeeded with other errors; cancelled, nobody
        knows. So a timeout belongs inside the block: outside of it, it looks like the caller's own change of mind.
        """
        return Call(self.outliers, picked.calls, self._watching, blame)

    # ---- who can be called

    def _look_again(self) -> None:
        instances = self._read()
        self.outliers.look()
        self._changes, self._due = self.outliers.changes, self.outliers.due
        if instances is not self._tuple:
            known, look = self._seen.get, self._see
            found = [known(id(instance)) or look(instance) for instance in instances]
            self._seen = dict(zip(map(id, instances), found, strict=True))
            self._tuple = instances
        members, missing = self._believed()
        if members != self._members or missing != self._missing:
            self._members, self._missing = members, missing
            self._choose = self.policy.pick if members else self._nobody
            if members:
                self.policy.update(members, missing)

    def _see(self, instance: Instance) -> _Seen:
        endpoint = self._filters.look(instance)
        if isinstance(endpoint, str):
            return _Seen(instance, None, endpoint)
        if instance.weight <= 0:
            return _Seen(instance, None, "of weight 0")
        if instance.mode != "serving":
            return _Seen(instance, None, instance.mode if instance.mode == "draining" else f"in {instance.mode}")
        picked = Picked(instance, endpoint, self.outliers.calls(instance, endpoint))
        why = "critical" if instance.health == "critical" else "" if instance.liveness == "up" else STALE
        return _Seen(instance, picked, why)

    def _believed(self) -> tuple[tuple[Picked, ...], tuple[Instance, ...]]:
        """(those who can be called, those who serve and cannot)."""
        fit = [seen.picked for seen in self._seen.values() if not seen.why and seen.picked is not None]
        ill = [(seen.picked, seen.why) for seen in self._seen.values() if seen.why and seen.picked is not None]
        out = self.outliers.left_out(fit)
        if len(fit) - len(out) < self._panic * (len(fit) + len(ill)) or not fit:
            out = []
            if self._fail_open:
                fit += [picked for picked, why in ill if why == STALE]
                ill = [(picked, why) for picked, why in ill if why != STALE]
        missing = [picked.instance for picked, _ in ill] + [picked.instance for picked in out]
        without = set(out)
        return tuple([picked for picked in fit if picked not in without] if out else fit), tuple(missing)

    # ---- nobody

    def _another(self, key: str | bytes | None, avoid: Collection[Picked]) -> Picked:
        tried = {id(picked.calls) for picked in avoid}
        for picked in (self._choose(key), *self.policy.ordered(key)):
            if id(picked.calls) not in tried:
                return picked
        raise NoneRoutable(self.what, self._reasons({"tried already": len(self._members)}))

    def _nobody(self, key: str | bytes | None) -> Picked:
        if not self._seen:
            raise NoneRegistered(self.what)
        raise NoneRoutable(self.what, self._reasons({}))

    def _reasons(self, more: dict[str, int]) -> dict[str, int]:
        here = {id(picked) for picked in self._members}
        out = Counter(
            seen.why or "ejected" for seen in self._seen.values() if seen.picked is None or id(seen.picked) not in here
        )
        return dict(sorted(out.items())) | more


def _among(picked: Picked, others: Collection[Picked]) -> bool:
    return any(picked.calls is other.calls for other in others)
