"""A call to somebody who was picked: what tells this process how that went."""

from __future__ import annotations

from types import TracebackType

from .outliers import Calls, Outliers
from .policy import Policy

__all__ = ["Call"]


class Call:
    """Begun when it is made; then `succeeded`, `failed` or `abandoned`, of which only the first counts.

    Made by `Selection.begun` or, for a block, `Selection.calling`.
    """

    __slots__ = ("_at", "_blame", "_calls", "_outliers", "_over", "_policy", "_trial")

    def __init__(
        self,
        outliers: Outliers,
        calls: Calls,
        policy: Policy | None,
        blame: type[BaseException] | tuple[type[BaseException], ...],
    ) -> None:
        self._outliers, self._calls, self._policy, self._blame = outliers, calls, policy, blame
        self._over = False
        self._at = outliers.clock()
        self._trial = outliers.begin(calls, self._at)
        if policy is not None:
            policy.begun(calls)

    def succeeded(self) -> None:
        """The peer answered, be it with an error that is the caller's own."""
        self._end(True)

    def failed(self) -> None:
        """The peer is to blame: unreachable, too late, or unable."""
        self._end(False)

    def abandoned(self) -> None:
        """Nobody knows: the caller did not wait for the answer."""
        self._end(None)

    def _end(self, good: bool | None) -> None:
        if self._over:
            return
        self._over = True
        if self._policy is not None:
            self._policy.ended(self._calls)
        self._outliers.end(self._calls, self._at, self._trial, good)

    def __enter__(self) -> Call:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._end(True)
        elif isinstance(error, self._blame):
            self._end(False)
        else:
            self._end(True if isinstance(error, Exception) else None)
