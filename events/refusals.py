"""Errors as they travel in the headers of an answer, after the convention of NATS services (ADR-32)."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import AdsumError, BeforeLog, BrokerUnavailable, InvalidValue, NoLongerKept, NotYet, QuestionRefused

__all__ = ["error_of", "headers_of"]

CODE = "Nats-Service-Error-Code"
SENTENCE = "Nats-Service-Error"
UNAVAILABLE = "503"
_NAMED = {kind.code: kind for kind in (QuestionRefused, NotYet, BeforeLog, NoLongerKept)}


def headers_of(error: AdsumError) -> dict[str, str]:
    """The headers that tell of an error: a code, and the sentence in one line."""
    code = UNAVAILABLE
    if isinstance(error, InvalidValue):
        code = QuestionRefused.code
    elif isinstance(error, QuestionRefused):
        code = error.code
    return {CODE: code, SENTENCE: " ".join(str(error).split())}


def error_of(headers: Mapping[str, str] | None) -> AdsumError | None:
    """The error that these headers tell of; None if they tell of none."""
    code = (headers or {}).get(CODE)
    if headers is None or code is None:
        return None
    sentence = headers.get(SENTENCE, "") or f"error {code}"
    if code in _NAMED:
        return _NAMED[code](sentence)
    return QuestionRefused(sentence) if code.startswith("4") else BrokerUnavailable(sentence)
