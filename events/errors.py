"""The root of every error that adsum raises on purpose, and those that both halves share.

    AdsumError
    ├── InvalidValue            a value breaks a rule; also a ValueError
    ├── Undecodable             bytes on the bus that are none of our messages
    ├── BrokerUnavailable       the broker did not answer; the same call may work later
    │   ├── Unacknowledged      a publish was sent and nobody said whether it was stored
    │   └── NobodyAnswers       a question was asked and nobody is there who answers such
    ├── BrokerRefused           the broker answered no; so it will until somebody changes something there
    │   ├── StreamMissing       there is no such stream
    │   └── LogUnfinished       a command that an operator began on the log is at work, or was cut off
    ├── QuestionRefused         an adsumd does not answer this question about the past as it stands
    │   ├── NotYet              the moment is in the future, or not folded yet
    │   ├── BeforeLog           nothing was ever logged at that moment
    │   └── NoLongerKept        what happened then was removed from the catalog
    └── StreamMismatch          a stream exists with other settings than the ones adsum needs

`adsum.projector.errors` and `adsum.clients.errors` hang their own below the same root.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "AdsumError",
    "BeforeLog",
    "BrokerRefused",
    "BrokerUnavailable",
    "InvalidValue",
    "LogUnfinished",
    "NoLongerKept",
    "NobodyAnswers",
    "NotYet",
    "QuestionRefused",
    "StreamMismatch",
    "StreamMissing",
    "Unacknowledged",
    "Undecodable",
]


class AdsumError(Exception):
    """Anything that adsum raises on purpose."""


class InvalidValue(AdsumError, ValueError):
    """A value breaks a rule. Names what it was for, the value, the rule and, if there is one, a value that would do."""

    def __init__(self, field: str, value: object, rule: str, suggestion: str | None = None) -> None:
        self.field, self.value, self.rule, self.suggestion = field, value, rule, suggestion
        hint = f"; {suggestion!r} would do" if suggestion else ""
        super().__init__(f"{field} {_shown(value)}: {rule}{hint}")


class Undecodable(AdsumError):
    """Bytes on the bus that cannot be read as the message their subject promises."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class BrokerUnavailable(AdsumError):
    """The broker did not answer (not connected, timed out, no leader). The same call may work later."""


class Unacknowledged(BrokerUnavailable):
    """A publish was sent and its acknowledgement never came: it may or may not be in the log."""


class NobodyAnswers(BrokerUnavailable):
    """Nobody is there who takes such a publish or answers such a question."""


class BrokerRefused(AdsumError):
    """The broker answered no: a permission, a condition, a limit (consumers, storage, connections), no such stream.

    The same call will be refused until that changes. A limit may pass by itself, the others need somebody's hand.
    """


class StreamMissing(BrokerRefused):
    """There is no such stream: it was deleted, or not created yet."""


class QuestionRefused(AdsumError):
    """An adsumd does not answer this question about the past as it stands. `code` names the error on the bus."""

    code = "400"


class NotYet(QuestionRefused):
    """The moment is in the future, or in a part of the log that the one who answers has not folded yet."""

    code = "425"


class BeforeLog(QuestionRefused):
    """Nothing was ever logged at that moment or before it."""

    code = "404"


class NoLongerKept(QuestionRefused):
    """What happened then was removed from the catalog: it is complete from a later revision on."""

    code = "410"


class LogUnfinished(BrokerRefused):
    """A command that an operator began on the log is at work, or was cut off; the message says what to do."""


class StreamMismatch(AdsumError):
    """A stream exists with other settings. `differences` holds (field, found, needed) triples."""

    def __init__(self, stream: str, differences: Sequence[tuple[str, object, object]]) -> None:
        self.stream, self.differences = stream, tuple(differences)
        told = "; ".join(f"{field} is {found!r}, needed {needed!r}" for field, found, needed in differences)
        super().__init__(
            f"stream {stream} exists with other settings: {told}. "
            "adsum never changes a stream that holds data: change these settings, or use another broker or account."
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
