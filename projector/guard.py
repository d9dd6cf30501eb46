"""The guard against mass expiry. Pure.

When more than half of a service, and at least three of it, would expire within one TTL, that is more often a
fault of the observer's world than the death of all of them. The guard then holds these expiries back for four TTLs
of observed time, says so, and after that lets the log speak. They are stale all the while, so nobody calls them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from .catalog import Held
from .silence import Suspicion

__all__ = ["Guard", "Service", "service_of"]

SHARE = 0.5
LEAST = 3
HOLD_TTLS = 4.0

Service: TypeAlias = tuple[str, str]


class Guard:
    """Decides which expiries may be said. `held` is to be written down: a restart neither ends nor renews a hold."""

    def __init__(self, held: Iterable[Held] = ()) -> None:
        self._since: dict[Service, float] = {(hold.namespace, hold.service): hold.since for hold in held}
        self._holding: set[Service] = set(self._since)
        self._recent: list[tuple[float, Service]] = []

    @property
    def held(self) -> tuple[Held, ...]:
        """Every hold that was begun and whose cause is not over, also when its time is up."""
        return tuple(Held(namespace, service, since) for (namespace, service), since in self._since.items())

    @property
    def holding(self) -> frozenset[Service]:
        """The services whose expiries are being held back."""
        return frozenset(self._holding)

    def admit(self, due: Sequence[Suspicion], living: Mapping[Service, int], clock: float) -> list[Suspicion]:
        """Those of the expiries that are `due` at `clock` that may be said now.

        `living` counts the live records of each service, the due ones among them.
        """
        by_service: dict[Service, list[Suspicion]] = {}
        for suspicion in due:
            by_service.setdefault(service_of(suspicion), []).append(suspicion)
        self._forget(by_service, clock)
        recent = Counter(service for _, service in self._recent)
        admitted: list[Suspicion] = []
        for service, suspicions in by_service.items():
            if not self._holds(service, suspicions, living.get(service, 0), recent[service], clock):
                admitted += suspicions
        return admitted

    def expired(self, suspicion: Suspicion, clock: float) -> None:
        """An expiry was said; it counts for one TTL."""
        self._recent.append((clock + suspicion.evidence.ttl, service_of(suspicion)))

    def _holds(self, service: Service, due: Sequence[Suspicion], living: int, recent: int, clock: float) -> bool:
        ttl = max(suspicion.evidence.ttl for suspicion in due)
        leaving, total = len(due) + recent, living + recent
        if service not in self._since:
            if leaving < LEAST or leaving <= SHARE * total:
                return False
            self._since[service] = clock
        if clock - self._since[service] > HOLD_TTLS * ttl:
            self._holding.discard(service)
            return False
        self._holding.add(service)
        return True

    def _forget(self, due: Mapping[Service, object], clock: float) -> None:
        """A hold is over once nobody of its service is due, an expiry is recent for one TTL."""
        for service in [service for service in self._since if service not in due]:
            del self._since[service]
            self._holding.discard(service)
        self._recent = [(until, service) for until, service in self._recent if clock <= until]


def service_of(suspicion: Suspicion) -> Service:
    """The service a suspicion is about."""
    return suspicion.record.key.namespace, suspicion.record.key.service
