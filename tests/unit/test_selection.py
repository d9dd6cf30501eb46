"""A selection: who may be picked at all, and what it says where nobody may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.clients import NoneRegistered, NoneRoutable, RoundRobin, Selection
from adsum.clients.choosing.filters import Filters
from adsum.events.description import Endpoint
from adsum.events.errors import InvalidValue
from adsum.events.signals import Instance
from tests.choosing import POLICIES, Crowd, ids

STATES = st.fixed_dictionaries(
    {
        "liveness": st.sampled_from(["up", "up", "stale"]),
        "health": st.sampled_from(["passing", "passing", "warning", "critical"]),
        "mode": st.sampled_from(["serving", "serving", "serving", "draining", "maintenance"]),
        "weight": st.sampled_from([0.0, 1.0, 1.0, 2.5, 1e-300, 1.7e308]),
        "zone": st.sampled_from(["here", "there", ""]),
    }
)


def allowed(crowd: Crowd, fail_open: bool, panic: float) -> set[str]:
    """By the words of the rule: who may be picked, where nobody is ejected."""
    serving = [one for one in crowd.present if one.mode == "serving" and one.weight > 0]
    fit = {one.id for one in serving if one.routable}
    stale = {one.id for one in serving if one.liveness == "stale" and one.health != "critical"}
    disbelieved = not fit or len(fit) / len(serving) < panic
    return fit | stale if fail_open and disbelieved else fit


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data(), fail_open=st.booleans(), panic=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_nobody_is_picked_who_must_not_be(policy: str, data: st.DataObject, fail_open: bool, panic: float) -> None:
    """For any mix of states, and any change of it, by every policy; and somebody is, where anybody may."""
    crowd = Crowd()
    selection = crowd.select(POLICIES[policy](), fail_open=fail_open, panic=panic)
    for _ in range(data.draw(st.integers(1, 4))):
        for id, state in data.draw(st.dictionaries(st.sampled_from("abcdef"), STATES, max_size=6)).items():
            crowd.put(id, **state)
        crowd.leave(*data.draw(st.sets(st.sampled_from("abcdef"), max_size=3)))
        may = allowed(crowd, fail_open, panic)
        if not may:
            for choose in (selection.pick, selection.ordered):
                with pytest.raises(NoneRoutable if crowd.present else NoneRegistered):
                    choose("key")
            continue
        assert set(ids(selection.members)) == may
        for n in range(12):
            picked = selection.pick(f"key-{n}")
            assert picked.instance.id in may
            assert any(picked.instance is one for one in crowd.present), "as it is now"
            if n % 2:
                selection.begun(picked).succeeded()
            elif n % 3:
                selection.begun(picked)
        ordered = selection.ordered("key")
        assert sorted(ids(ordered)) == sorted(may)


@pytest.mark.parametrize("policy", ["round robin", "weighted", "first", "hash", "zone", "zone by hash"])
@given(weights=st.lists(st.integers(1, 5), min_size=1, max_size=6), picks=st.integers(0, 9), ill=st.integers(0, 3))
def test_the_first_of_all_is_the_one_that_would_be_picked(
    policy: str, weights: list[int], picks: int, ill: int
) -> None:
    """And it counts as picked: two selections that do the one and the other go on alike."""
    crowd = Crowd()
    for n, weight in enumerate(weights):
        crowd.put(f"n{n}", weight=float(weight), zone="here" if n % 2 else "there")
    for n in range(ill):
        crowd.put(f"ill{n}", health="critical", zone="here")
    one, other = crowd.select(POLICIES[policy]()), crowd.select(POLICIES[policy]())
    for n in range(picks):
        assert one.pick(f"{n}").instance.id == other.ordered(f"{n}")[0].instance.id


@pytest.mark.parametrize(
    ("up", "stale", "critical", "fail_open", "panic", "picked"),
    [
        (10, 0, 0, False, 0.5, 10),
        (5, 5, 0, True, 0.5, 5),  # just half: still believed
        (4, 6, 0, True, 0.5, 10),
        (4, 6, 0, False, 0.5, 4),  # nobody who fell silent, unless it is asked for
        (4, 3, 3, True, 0.5, 7),  # critical ones count as ill and are never picked
        (4, 6, 0, True, 0.0, 4),
        (0, 6, 0, True, 0.0, 6),  # nobody else is left
        (0, 6, 0, False, 0.5, 0),
        (0, 0, 6, True, 1.0, 0),
        (9, 1, 0, True, 1.0, 10),
    ],
)
def test_health_is_believed_within_reason(
    up: int, stale: int, critical: int, fail_open: bool, panic: float, picked: int
) -> None:
    """Envoy's panic threshold; those who are draining do not count at all."""
    crowd = Crowd(*(f"up{n}" for n in range(up)))
    for n in range(stale):
        crowd.put(f"stale{n}", liveness="stale")
    for n in range(critical):
        crowd.put(f"critical{n}", health="critical")
    for n in range(7):
        crowd.put(f"draining{n}", mode="draining")
    assert len(crowd.select(fail_open=fail_open, panic=panic).members) == picked


def test_ejections_count_no_more_when_too_few_are_left() -> None:
    """Two of ten are ejected and four critical: four of ten are left, and the two are called again."""
    crowd = Crowd(*(f"n{n}" for n in range(10)))
    selection = crowd.select()
    crowd.fail(selection, "n0")
    crowd.fail(selection, "n1")
    assert len(selection.members) == 8
    for n in range(2, 6):
        crowd.put(f"n{n}", health="critical")
    assert ids(selection.members) == ["n0", "n1", "n6", "n7", "n8", "n9"]


def test_the_filters_and_what_is_said_of_those_they_leave_out() -> None:
    """The error names the service, and counts why nobody will do."""
    crowd = Crowd("right", zone="eu", version="1.5", metadata={"team": "billing", "more": "x"})
    filters = Filters(zone="eu", version=">=1.4,<2", metadata={"team": "billing"}, endpoint="admin", protocol="grpc")
    selection = crowd.select(filters=filters)
    with pytest.raises(NoneRoutable, match="1 without an endpoint of name 'admin' and protocol 'grpc'"):
        selection.pick()
    admin = Endpoint(name="admin", host="h", port=2, protocol="grpc")
    crowd.put("right", endpoints=(Endpoint(host="h", port=1), admin))
    assert selection.pick().endpoint == admin
    crowd.put("right", endpoints=(Endpoint(name="admin", host="h", port=2, protocol="http"),))
    assert selection.members == ()
    crowd.put("right", endpoints=(admin,))
    crowd.put("elsewhere", zone="us")
    crowd.put("old", zone="eu", version="1.3")
    crowd.put("new", zone="eu", version="2.0-rc.1")
    crowd.put("others", zone="eu", version="1.4", metadata={"team": "search"})
    fine = {"zone": "eu", "version": "1.4", "metadata": {"team": "billing"}, "endpoints": (admin,)}
    crowd.put("light", weight=0.0, **fine)
    crowd.put("leaving", mode="draining", **fine)
    crowd.put("mended", mode="maintenance", **fine)
    crowd.put("ill", health="critical", **fine)
    crowd.put("silent", liveness="stale", **fine)
    assert ids(selection.members) == ["right"]
    crowd.leave("right")
    with pytest.raises(NoneRoutable) as caught:
        selection.pick()
    assert caught.value.what == "default/orders"
    assert caught.value.reasons == {
        "not in zone 'eu'": 1,
        "not of version '>=1.4,<2'": 2,
        "without metadata {'team': 'billing'}": 1,
        "of weight 0": 1,
        "draining": 1,
        "in maintenance": 1,
        "critical": 1,
        "stale": 1,
    }
    assert "default/orders" in str(caught.value)
    assert "2 not of version '>=1.4,<2'" in str(caught.value)
    crowd.present = ()
    with pytest.raises(NoneRegistered, match="default/orders: no instance is registered"):
        selection.pick()


@pytest.mark.parametrize("policy", POLICIES)
def test_another_one_is_picked_than_those_who_were_tried(policy: str) -> None:
    """Until nobody is left; an older word of the same endpoint is the same one."""
    crowd = Crowd("a", "b", "c", zone="here")
    selection = crowd.select(POLICIES[policy]())
    tried = []
    for _ in range(3):
        tried.append(selection.pick("key", avoid=tried))
        crowd.put("a", metadata={"n": str(len(tried))})
    assert sorted(ids(tried)) == ["a", "b", "c"]
    with pytest.raises(NoneRoutable, match="3 tried already"):
        selection.pick("key", avoid=tried)


def test_nothing_is_worked_out_anew_until_something_changed() -> None:
    """The policy hears of its members only when they are others; what is kept of an instance is the same object."""
    updates: list[list[str]] = []

    class Told(RoundRobin):
        def update(self, members, missing):  # type: ignore[no-untyped-def]
            updates.append(ids(members))
            super().update(members, missing)

    crowd = Crowd("a", "b")
    selection = crowd.select(Told())
    first = [selection.pick() for _ in range(4)]
    assert first[0] is first[2]
    crowd.put("c", mode="draining")
    selection.pick()
    crowd.present = (*crowd.present[:1], *crowd.present[1:])
    selection.pick()
    assert updates == [["a", "b"]]
    crowd.put("b", version="2")
    assert {selection.pick().instance.version for _ in range(2)} == {"", "2"}
    assert selection.members[0] is first[0]
    assert updates == [["a", "b"], ["a", "b"]]


def test_what_makes_no_sense_is_refused() -> None:
    """A policy of two selections would be told of two crowds."""
    crowd = Crowd("a")
    policy = RoundRobin()
    crowd.select(policy)
    with pytest.raises(InvalidValue, match="each needs one of its own"):
        crowd.select(policy)
    for no_policy in (RoundRobin, "RoundRobin"):
        with pytest.raises(InvalidValue, match="must be an object of a policy"):
            crowd.select(no_policy)
    crowd.select(RoundRobin())  # a class that was taken would be taken for good, with all its objects
    for panic in (-0.1, 1.1):
        with pytest.raises(InvalidValue, match="panic"):
            crowd.select(panic=panic)


def test_what_reading_raises_comes_out() -> None:
    """As NotLoaded of a directory that knows nothing yet: also after it had known something."""

    def read() -> tuple[Instance, ...]:
        raise LookupError("not loaded")

    crowd = Crowd("a")
    selection = Selection(read, "default/orders", Filters(), RoundRobin(), crowd.outliers)
    for choose in (selection.pick, selection.ordered, lambda: selection.members):
        with pytest.raises(LookupError):
            choose()
