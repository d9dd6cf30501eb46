"""What the driver's errors are to adsum: the one boundary at which its tree of errors becomes ours."""

from __future__ import annotations

import asyncio
from types import TracebackType

import nats.errors
import nats.js.errors

from .errors import AdsumError, BrokerRefused, BrokerUnavailable, NobodyAnswers, StreamMissing

__all__ = ["ODD_ANSWER", "Translated", "WrongLastSequence", "ours"]

# What reading an answer raises that is none of the broker's: whoever hears a request can answer it.
ODD_ANSWER = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


class WrongLastSequence(BrokerRefused):
    """A conditional publish was refused: another message came to that subject first."""


# 10005: too few servers of a cluster are there to place a stream, as when it has just started.
_REFUSALS = {10005: BrokerUnavailable, 10059: StreamMissing, 10071: WrongLastSequence, 10164: WrongLastSequence}


class Translated:
    """`with Translated("publish to x"):` the driver's errors become ours, and a cancellation comes out.

    The driver loses it where it makes another error of it, and wherever it waits with `asyncio.wait_for`, which up to
    Python 3.11 gives the result instead if both come at once. A task would then go on that its owner waits for to end.
    """

    def __init__(self, doing: str, unanswered: type[BrokerUnavailable] = BrokerUnavailable) -> None:
        self._doing, self._unanswered = doing, unanswered

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None and self._task.cancelling() > self._before:
            raise asyncio.CancelledError
        told = ours(error, self._doing, self._unanswered) if error is not None else None
        if told is not None:
            raise told from error


def ours(error: BaseException, doing: str, unanswered: type[BrokerUnavailable]) -> AdsumError | None:
    """What an error of the driver is to us; None for one that is none of its."""
    match error:
        case nats.errors.TimeoutError() | TimeoutError():
            return unanswered(f"{doing}: no answer in time")
        case nats.js.errors.NoStreamResponseError() | nats.js.errors.ServiceUnavailableError():
            why = "no stream answers (no JetStream there, no adsumd yet, or no leader at the moment)"
            return NobodyAnswers(f"{doing}: {why}")
        case nats.js.errors.APIError():
            return _REFUSALS.get(error.err_code or 0, BrokerRefused)(f"{doing}: {error.description}")
        case nats.errors.Error() | OSError():
            return BrokerUnavailable(f"{doing}: {error}")
        case RuntimeError() if "closed" in str(error):  # uvloop's word for a socket that is gone before anybody noticed
            return unanswered(f"{doing}: {error}")
    if isinstance(error, ODD_ANSWER):
        return unanswered(f"{doing}: an answer that is none of the broker's: {error!r}")
    return None
