"""Consistent hashing: every process agrees, few keys move, and nobody has more than the bound of calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.clients import ConsistentHash, Selection, ZonePreferring
from adsum.clients.choosing.ring import Ring, position
from adsum.events.errors import InvalidValue
from tests.choosing import Crowd, ids

NAMES = [f"n{n}" for n in range(8)]


def toggle(crowd: Crowd, name: str) -> None:
    """It leaves if it is there, and joins if it is not."""
    if name in {one.id for one in crowd.present}:
        crowd.leave(name)
    else:
        crowd.put(name)


def homes(selection: Selection, keys: range = range(2000)) -> dict[int, str]:
    """To whom each key belongs."""
    return {key: selection.pick(f"key-{key}").instance.id for key in keys}


@given(st.lists(st.sampled_from(NAMES), max_size=12), st.dictionaries(st.sampled_from(NAMES), st.floats(0.1, 5)))
def test_every_process_agrees_whatever_it_saw_before(churn: list[str], weights: dict[str, float]) -> None:
    """One that saw all the comings and goings and one that sees only the last; and only keys that must move do."""
    crowd = Crowd("stays", "remains")
    old = crowd.select(ConsistentHash())
    before, there = homes(old, range(60)), {"stays", "remains"}
    for name in churn:
        toggle(crowd, name)
        if name in weights and any(one.id == name for one in crowd.present):
            crowd.put(name, weight=weights[name])
        now, here = homes(old, range(60)), {one.id for one in crowd.present}
        for key, home in now.items():
            assert home == before[key] or before[key] not in here or home not in there
        before, there = now, here
    assert homes(crowd.select(ConsistentHash()), range(60)) == before


def test_few_keys_move_when_one_joins_and_all_come_back_with_a_restart() -> None:
    """About their share; another term of the same id is the same home."""
    crowd = Crowd(*(f"n{n}" for n in range(20)))
    selection = crowd.select(ConsistentHash())
    before = homes(selection)
    shares = Counter(before.values())
    assert len(shares) == 20
    assert max(shares.values()) < 2 * 2000 / 20
    crowd.put("new")
    after = homes(selection)
    moved = [key for key in before if before[key] != after[key]]
    assert {after[key] for key in moved} == {"new"}
    assert 2000 / 21 / 2 < len(moved) < 2000 / 21 * 2
    crowd.leave("new")
    assert homes(selection) == before
    crowd.put("n3", term="another", liveness="stale")
    assert "n3" not in homes(selection).values()
    crowd.put("n3", liveness="up")
    assert homes(selection) == before
    crowd.put("n4", weight=2.0)
    assert Counter(homes(selection).values())["n4"] > 1.4 * shares["n4"]


@given(
    st.lists(st.one_of(st.integers(0, 4), st.just("end"), st.sampled_from(NAMES)), max_size=120),
    st.sampled_from([1.01, 1.25, 2.0]),
)
def test_nobody_has_more_than_the_bound_of_calls_under_way(steps: list[int | str], bound: float) -> None:
    """Five hot keys, calls that begin and end, members who come and go: at each pick, by the paper's bound."""
    crowd = Crowd(*NAMES[:3])
    crowd.put("n0", weight=3.0)
    policy = ConsistentHash(bound=bound)
    selection = crowd.select(policy)
    under_way = []
    for step in steps:
        if step == "end":
            if under_way:
                under_way.pop(0).succeeded()
        elif isinstance(step, str):
            toggle(crowd, step)
        elif crowd.present:
            picked = selection.pick(f"hot-{step}")
            under_way.append(selection.begun(picked))
            members = selection.members
            total = sum(one.calls.outstanding for one in members)
            whole = sum(one.weight for one in members)
            assert picked.calls.outstanding <= math.ceil(bound * total * picked.weight / whole)
            assert policy._load == total
    for call in under_way:
        call.failed()
    selection.pick("x") if crowd.present else None
    assert policy._loads == {}


def test_a_hot_key_spills_to_the_next_and_comes_home() -> None:
    """With everybody idle, its calls fill its home up to the bound; when they ended it is at home again."""
    crowd = Crowd("a", "b", "c", "d")
    selection = crowd.select(ConsistentHash())
    home = selection.pick("hot")
    calls = [selection.begun(selection.pick("hot")) for _ in range(40)]
    assert [one.calls.outstanding <= 13 for one in selection.members] == [True] * 4
    assert home.calls.outstanding >= 12
    assert ids(selection.ordered("hot"))[0] == selection.pick("hot").instance.id
    for call in calls:
        call.succeeded()
    assert selection.pick("hot") is home
    assert ids(selection.ordered("hot"))[0] == home.instance.id


def test_a_key_is_text_or_bytes_and_not_nothing() -> None:
    """The same bytes are the same key. Settings that make no sense are refused."""
    crowd = Crowd(*NAMES)
    selection = crowd.select(ConsistentHash())
    assert selection.pick("käse") is selection.pick("käse".encode())
    for choose in (selection.pick, selection.ordered):
        with pytest.raises(InvalidValue, match="key"):
            choose()
    for given_ in ({"points": 0}, {"bound": 1.0}):
        with pytest.raises(InvalidValue, match=next(iter(given_))):
            ConsistentHash(**given_)  # type: ignore[arg-type]


def test_places_on_the_circle_are_the_same_for_ever() -> None:
    """Another rule would move every key of every cache at an upgrade, and while it is under way disagree."""
    crowd = Crowd(*NAMES)
    told = "".join(homes(crowd.select(ConsistentHash()), range(40))[key][1] for key in range(40))
    assert told == "3120241012465560514410133131267560747221"


def test_who_never_comes_back_keeps_no_points() -> None:
    """A hundred who come and go, one after the other: of few of them anything is kept."""
    crowd = Crowd(*NAMES)
    policy = ConsistentHash()
    selection = crowd.select(policy)
    for n in range(100):
        crowd.put(f"new-{n}")
        selection.pick("key")
        crowd.leave(f"new-{n}")
        selection.pick("key")
        assert len(policy._placed) == len(policy._ring._names) <= len(NAMES) + 1 + 8 + len(NAMES) // 4


def test_the_keys_that_stay_in_a_zone_are_of_the_whole_circle() -> None:
    """Not only those of its beginning, or who has its points there would have all of them."""
    crowd = Crowd("far", zone="there")
    for n in range(4):
        crowd.put(f"n{n}", zone="here", health="passing" if n == 0 else "critical")
    selection = crowd.select(ZonePreferring("here", ConsistentHash))
    places = [position(f"{n}") / 2**64 for n in range(500) if selection.pick(f"{n}").instance.zone == "here"]
    assert len(places) == pytest.approx(500 * 1.4 / 4, abs=50)
    assert min(places) < 0.05
    assert max(places) > 0.95


def test_the_whole_list_is_found_long_before_the_circle_is_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for once for each who is tried in vain, so its cost is that of an outage."""
    selection = Crowd(*(f"i{n}" for n in range(500))).select(ConsistentHash())
    names_from, steps = Ring.names_from, 0

    def counted(self: Ring, place: int) -> Iterator[str]:
        nonlocal steps
        for name in names_from(self, place):
            steps += 1
            yield name

    monkeypatch.setattr(Ring, "names_from", counted)
    assert len(set(ids(selection.ordered("x")))) == 500
    assert steps < 20 * 500
