from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.events import ids
from adsum.events.ids import is_uuid7, new_epoch, new_id

UUIDS_7 = st.builds(
    lambda milliseconds, random: str(
        uuid.UUID(int=milliseconds << 80 | 7 << 76 | (random >> 62) << 64 | 2 << 62 | random & (1 << 62) - 1)
    ),
    st.integers(0, (1 << 48) - 2),
    st.integers(0, (1 << 74) - 1),
)


def test_ids_are_uuids_of_version_7_of_now() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(new_id())
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 >= before


def test_ids_grow() -> None:
    made = [new_id() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert all(is_uuid7(one) for one in made)


def test_ids_of_many_threads_differ_and_grow_in_each() -> None:
    with ThreadPoolExecutor(4) as pool:
        threads = list(pool.map(lambda _: [new_id() for _ in range(2_000)], range(4)))
    assert len({one for made in threads for one in made}) == 8_000
    assert all(made == sorted(made) for made in threads)


def test_ids_grow_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    last = new_id()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 0)
    assert new_id() > last


@given(st.lists(UUIDS_7))
def test_an_epoch_is_above_all_before(epochs: list[str]) -> None:
    epoch = new_epoch(epochs)
    assert is_uuid7(epoch)
    assert all(epoch > before for before in epochs)


def test_an_epoch_is_above_one_of_the_far_future() -> None:
    future = "ff970000-0000-7000-8000-000000000001"
    assert new_epoch([future, new_id()]) > future


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "6f1b3c1e-0000-4000-8000-000000000000",
        "01970000000070008000000000000001",
        "01970000-0000-7000-8000-00000000000A",
        "{01970000-0000-7000-8000-000000000001}",
        "01970000-0000-7000-c000-" + "0" * 12,
    ],
)
def test_what_is_no_uuid_7(text: str) -> None:
    assert not is_uuid7(text)


def test_what_is_no_uuid7_is_not_an_epoch_to_be_above() -> None:
    assert is_uuid7(new_epoch(["zzzz", "", "ffffffff-ffff-ffff-ffff-ffffffffffff"]))
