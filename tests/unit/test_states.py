"""What is heard of an instance counts only on that instance's own subjects."""

from __future__ import annotations

import pytest

from adsum.clients.states import read_state
from adsum.events import subjects
from adsum.events.codec import encode
from adsum.projector.record import departed, instance_of
from tests.making import key, record

EPOCH = "01900000-0000-7000-8000-000000000001"
TOLD = [instance_of(record(), EPOCH), departed(key(), "t", 3, "expired", EPOCH)]


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("subject", [subjects.change(key()), subjects.topology(key())])
def test_its_own(told: object, subject: str) -> None:
    assert read_state(subject, encode(told)) == told  # type: ignore[arg-type]


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize(
    "subject",
    [
        subjects.change(key("other")),
        subjects.topology(key(service="other")),
        subjects.change(key(namespace="other")),
        subjects.event(key()),
        "anything",
    ],
)
def test_another_one(told: object, subject: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read_state(subject, encode(told)) is None  # type: ignore[arg-type]
    assert subject in caplog.text


def test_what_cannot_be_read() -> None:
    assert read_state(subjects.change(key()), b"nothing") is None
