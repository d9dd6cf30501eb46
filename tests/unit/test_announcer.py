"""What is worth announcing, given what is stored."""

from __future__ import annotations

import pytest

from adsum.events.digest import Digest
from adsum.events.signals import NamespaceMark, ServiceMark, Topology
from adsum.projector.announcer import is_ahead, is_news
from adsum.projector.marks import Announced
from adsum.projector.mirror import Mirror, Stored
from adsum.projector.record import departed, instance_of
from tests.making import key, record

E1, E2 = "01900000-0000-7000-8000-000000000001", "01900000-0000-7000-8000-000000000002"
PRESENT = instance_of(record(revision=7), E1)
GONE = departed(key(), "t", 8, "expired", E1)


@pytest.mark.parametrize(
    ("stored", "told", "news"),
    [
        (None, PRESENT, True),
        (None, GONE, False),
        (Stored(1, E1, 7, True), PRESENT, False),
        (Stored(1, E1, 6, True), PRESENT, True),
        (Stored(1, E1, 7, True), GONE, True),
        (Stored(1, E1, 8, False), GONE, False),
        (Stored(1, E1, 8, True), PRESENT, True),
        (Stored(1, E2, 3, True), PRESENT, True),
        (Stored(1, "", 0, True), PRESENT, True),
        (Stored(1, "", 0, True), GONE, True),
    ],
)
def test_is_news(stored: Stored | None, told: Topology, news: bool) -> None:
    assert is_news(stored, told) is news


@pytest.mark.parametrize(
    ("stored", "ahead"),
    [
        (None, False),
        (Stored(1, E1, 9, True), False),
        (Stored(1, E1, 10, True), True),
        (Stored(1, E1, 12, False), True),
        (Stored(1, E1, 13, True), False),
        (Stored(1, E2, 10, True), False),
    ],
)
def test_is_ahead_of_checkpoint_9_in_a_log_that_ends_at_12(stored: Stored | None, ahead: bool) -> None:
    assert is_ahead(stored, E1, checkpoint=9, end=12) is ahead


def test_marks_tell_count_and_digest_and_end_with_the_namespace() -> None:
    announced = Announced(E1)
    announced.replace(key("a"), None, 3, 3)
    announced.replace(key("b"), None, 4, 4)
    announced.replace(key("a"), 3, 5, 5)
    wanted = Digest()
    wanted.add("a", 5)
    wanted.add("b", 4)
    (subject, mark), (_, end) = announced.messages(round=9)
    assert subject == "adsum.v1.default.mark.orders"
    assert mark == ServiceMark(epoch=E1, round=9, revision=5, count=2, digest=wanted.hex())
    assert end == NamespaceMark(epoch=E1, round=9, revision=5)


def test_an_empty_service_has_no_mark_but_its_namespace_has() -> None:
    announced = Announced(E1)
    announced.replace(key("a", namespace="shop"), None, 3, 3)
    announced.replace(key("a", namespace="shop"), 3, None, 4)
    assert [subject for subject, _ in announced.messages(1)] == ["adsum.v1.default.mark", "adsum.v1.shop.mark"]


def test_the_revision_of_a_mark_counts_tombstones_and_nothing_of_another_epoch() -> None:
    mirror = Mirror(E1)
    mirror.note(key("a"), Stored(1, E1, 3, True), 0.0)
    mirror.note(key("b"), Stored(2, E1, 4, True), 0.0)
    mirror.note(key("b"), Stored(3, E1, 6, False), 0.0)
    mirror.note(key("c"), Stored(4, E2, 1 << 60, True), 0.0)
    mirror.note(key("c"), Stored(5, E1, 5, False), 0.0)
    assert [mark.revision for _, mark in mirror.announced.messages(1)] == [6, 6]
    mirror.note(key("a"), Stored(6, E1, 7, False), 0.0)
    assert [(subject, mark.revision) for subject, mark in mirror.announced.messages(2)] == [
        ("adsum.v1.default.mark", 7)
    ]
