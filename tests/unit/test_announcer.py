"""What is worth announcing, given what is stored."""

from __future__ import annotations

import pytest

from adsum.events.digest import Digest
from adsum.events.signals import NamespaceMark, ServiceMark, Topology
from adsum.projector.announcer import Stored, is_news
from adsum.projector.marks import Announced
from adsum.projector.record import departed, instance_of
from tests.making import key, record

E1, E2 = "01900000-0000-7000-8000-000000000001", "01900000-0000-7000-8000-000000000002"
PRESENT = instance_of(record(revision=7), E1)
GONE = departed(key(), "t", 8, "expired", E1)


@pytest.mark.parametrize(
    ("stored", "told", "checkpoint", "news"),
    [
        (None, PRESENT, 9, True),
        (None, GONE, 9, False),
        (Stored(1, E1, 7, True), PRESENT, 9, False),
        (Stored(1, E1, 6, True), PRESENT, 9, True),
        (Stored(1, E1, 7, True), GONE, 9, True),
        (Stored(1, E1, 8, False), GONE, 9, False),
        (Stored(1, E1, 8, True), PRESENT, 9, True),
        (Stored(1, E1, 10, True), PRESENT, 9, False),
        (Stored(1, E1, 10, False), PRESENT, 9, False),
        (Stored(1, E2, 3, True), PRESENT, 9, True),
        (Stored(1, "", 0, True), PRESENT, 9, True),
        (Stored(1, "", 0, True), GONE, 9, True),
    ],
)
def test_is_news(stored: Stored | None, told: Topology, checkpoint: int, news: bool) -> None:
    assert is_news(stored, told, checkpoint) is news


def test_marks_tell_count_and_digest_and_end_with_the_namespace() -> None:
    announced = Announced(E1)
    announced.replace(key("a"), None, 3)
    announced.replace(key("b"), None, 4)
    announced.replace(key("a"), 3, 5)
    wanted = Digest()
    wanted.add("a", 5)
    wanted.add("b", 4)
    (subject, mark), (_, end) = announced.messages(round=9)
    assert subject == "adsum.v1.default.mark.orders"
    assert mark == ServiceMark(epoch=E1, round=9, revision=5, count=2, digest=wanted.hex())
    assert end == NamespaceMark(epoch=E1, round=9, revision=5)


def test_an_empty_service_has_no_mark_but_its_namespace_has() -> None:
    announced = Announced(E1)
    announced.replace(key("a", namespace="shop"), None, 3)
    announced.replace(key("a", namespace="shop"), 3, None)
    assert [subject for subject, _ in announced.messages(1)] == ["adsum.v1.default.mark", "adsum.v1.shop.mark"]
