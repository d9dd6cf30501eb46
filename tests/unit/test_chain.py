"""The running hash: the same log gives the same head however it was cut, another log another one."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.events.chain import GENESIS, link
from adsum.events.reader import Message
from adsum.projector.fold import fold_batch

LOG = [Message(f"adsum.v1.default.event.orders.{name}", b"x" * place, place, 1e9 + place) for place, name in
       enumerate("abcde", start=1)]  # fmt: skip


def head_of(log: list[Message]) -> bytes:
    head = GENESIS
    for message in log:
        head = link(head, message)
    return head


def test_a_link_is_what_the_page_says() -> None:
    """Head, sequence and microseconds as 8 bytes each, the subject's length as 4, subject, payload."""
    message = Message("a.b", b"payload", 7, 1.5)
    said = bytes(32) + (7).to_bytes(8) + (1_500_000).to_bytes(8) + (3).to_bytes(4) + b"a.b" + b"payload"
    assert link(GENESIS, message) == hashlib.sha256(said).digest()


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"subject": "adsum.v1.default.event.orders.z"}, id="subject"),
        pytest.param({"data": b"xyz"}, id="payload"),
        pytest.param({"sequence": 9}, id="sequence"),
        pytest.param({"time": 1e9 + 3.000001}, id="time, by a microsecond"),
    ],
)
def test_any_edit_gives_another_head(edit: dict[str, object]) -> None:
    edited = [*LOG[:2], LOG[2]._replace(**edit), *LOG[3:]]  # type: ignore[arg-type]  # as the field wants it
    assert head_of(edited) != head_of(LOG)
    assert head_of([*LOG[:2], *LOG[3:]]) != head_of(LOG) != head_of([LOG[1], LOG[0], *LOG[2:]])


def test_bytes_do_not_move_between_subject_and_payload() -> None:
    assert link(GENESIS, Message("ab", b"c", 1, 0.0)) != link(GENESIS, Message("a", b"bc", 1, 0.0))


@given(st.integers(1, 4))
def test_the_fold_links_every_message_whatever_becomes_of_it(cut: int) -> None:
    first = fold_batch({}, LOG[:cut])
    second = fold_batch({}, LOG[cut:], refused={LOG[cut].sequence: "refused"}, head=first.head)
    assert second.head == head_of(LOG)
    assert {**first.links, **second.links} == {message.sequence: head_of(LOG[:place]) for place, message in
                                               enumerate(LOG, start=1)}  # fmt: skip
