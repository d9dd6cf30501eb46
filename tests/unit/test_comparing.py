"""`adsum diff`: two worlds and what led from one to the other; and two states of one instance."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.clients.cli.comparing import changes, differences
from adsum.clients.cli.diff import Comparison, Difference, difference_fields, told
from adsum.clients.cli.past import instance_of, percent, span
from adsum.events.codec import decode_event
from adsum.events.description import Description, Endpoint
from adsum.events.lifecycle import Author, Deregistered, Event
from adsum.events.names import Key
from adsum.events.questions import Version
from adsum.events.reader import Message
from adsum.events.signals import Instance
from tests.catalog.story import Story, key

from .past import between, versions_of

FIRST, SECOND, THIRD = key(1), key(2), key(3)


def compared(messages: list[Message], since: int) -> Comparison:
    comparison = Comparison(since)
    for version in between(messages, since, messages[-1].sequence):
        comparison.add(version)
    return comparison


def events(messages: list[Message]) -> dict[int, Event]:
    return {message.sequence: decode_event(message.data) for message in messages}


def lines(messages: list[Message], since: int) -> list[tuple[str, str, int, str]]:
    found = compared(messages, since).differences()
    return [(one.kind, one.key.id, one.revision, told(one, events(messages))) for one in found]


def test_who_joined_left_and_changed() -> None:
    story = Story()
    messages = [
        story.register(FIRST, version="1"),
        story.register(SECOND),
        story.register(THIRD),
        story.update(FIRST, version="2"),  # 4
        story.lapse(SECOND),
        story.expire(SECOND),  # 6
        story.register(key(4)),  # 7
        story.health(THIRD, "disk full"),  # 8
    ]
    removed = Deregistered(id="x", term=story.terms[key(4)], by=Author("operator", "ann@desk"), reason="wrong")
    assert lines(messages, 3) == [
        ("changed", FIRST.id, 4, "10.0.0.7:8080 -> 10.0.0.8:8081; capabilities payments -> none; version 1 -> 2; "
         "metadata pod=a -> none"),
        ("left", SECOND.id, 6, "expired by the reaper (node-1): silent 16.2s after heartbeat 7, ttl 15s"),
        ("changed", THIRD.id, 8, "up -> critical; disk full"),
        ("joined", key(4).id, 7, "10.0.0.7:8080 payments pod=a"),
    ]  # fmt: skip
    messages.append(story.say(key(4), removed))
    assert lines(messages, 8) == [("left", key(4).id, 9, "deregistered by an operator (ann@desk): wrong")]
    assert lines(messages, 9) == []
    assert [(kind, id) for kind, id, _, _ in lines(messages, 0)] == [("joined", FIRST.id), ("joined", THIRD.id)]
    assert compared(messages, 0).passing == 2  # SECOND and 4 came and went


def test_a_new_life_says_how_the_one_before_ended() -> None:
    story = Story()
    messages = [story.register(FIRST), story.register(SECOND)]
    messages += [story.register(FIRST, version="2"), story.update(FIRST, version="3", capabilities=["x"])]
    messages += [story.expire(SECOND), story.register(SECOND)]
    assert [(kind, revision, text.split("; ")[0]) for kind, _, revision, text in lines(messages, 2)] == [
        ("changed", 4, "a new life (the one before: superseded, its owner (orders-7f) registered it anew)"),
        ("changed", 6, "a new life (the one before: expired by the reaper (node-1): silent 16.2s after heartbeat 7, "
         "ttl 15s)"),
    ]  # fmt: skip


def test_what_was_undone_is_no_difference() -> None:
    story = Story()
    messages = [story.register(FIRST), story.lapse(FIRST), story.resume(FIRST)]
    assert lines(messages, 1) == []
    assert [text for *_, text in lines(messages, 2)] == ["stale -> up"]


def test_the_fields_of_json() -> None:
    story = Story()
    messages = [story.register(FIRST, version="1"), story.register(FIRST, version="2"), story.leave(FIRST)]
    [changed] = [difference_fields(one, events(messages), "e") for one in compared(messages[:2], 1).differences()]
    assert (changed["kind"], changed["reason"], changed["author"].kind) == ("changed", "superseded", "owner")
    assert changed["changes"]["version"] == ("1", "2")
    assert (changed["before"]["version"], changed["after"]["version"]) == ("1", "2")
    [left] = [difference_fields(one, events(messages), "e") for one in compared(messages, 1).differences()]
    assert (left["kind"], left["reason"], left["revision"], left["after"]) == ("left", "deregistered", 3, None)
    assert left["changes"] == {}
    msgspec.json.encode([changed, left])


def world(versions: list[Version], revision: int) -> dict[Key, Instance]:
    return {
        one.key: instance_of(one, "")
        for one in versions
        if one.began_revision <= revision and (one.ended_revision is None or one.ended_revision > revision)
    }


@pytest.mark.parametrize("seed", range(30))
def test_a_diff_is_what_two_worlds_do_not_share(seed: int) -> None:
    """For any history and any two moments: nobody is missing, nobody is invented, each with its states at both."""
    dice, story = random.Random(seed), Story()
    messages = []
    for _ in range(80):
        who = key(dice.randrange(5), dice.choice(["orders", "billing"]))
        deeds = [story.update, story.health, story.lapse, story.resume, story.expire, story.leave]
        fresh = who not in story.terms or dice.random() < 0.2
        messages.append(story.register(who, version=dice.choice("12")) if fresh else dice.choice(deeds)(who))
    since, until = sorted(dice.sample(range(81), 2))
    versions = versions_of(messages)
    before, after = world(versions, since), world(versions, until)
    found: list[Difference] = compared(messages[:until], since).differences()
    kinds = {
        **dict.fromkeys(after.keys() - before.keys(), "joined"),
        **dict.fromkeys(before.keys() - after.keys(), "left"),
        **{who: "changed" for who in before.keys() & after.keys() if changes(before[who], after[who])},
    }
    assert {one.key: one.kind for one in found} == kinds
    assert [one.key for one in found] == sorted(kinds)
    told_of = {message.sequence: message for message in messages}
    for one in found:
        assert (instance_of(one.before, "") if one.before else None) == before.get(one.key)
        assert (instance_of(one.after, "") if one.after else None) == after.get(one.key)
        assert since < one.revision <= until
        assert one.time == told_of[one.revision].time
        new_life = one.kind == "changed" and before[one.key].term != after[one.key].term
        assert bool(one.ended) == (one.kind == "left" or new_life)
        if one.kind == "joined":
            assert one.revision == min(v.began_revision for v in versions if v.term == after[one.key].term)
        if new_life:
            lived = [v for v in versions if v.term == before[one.key].term]
            assert one.ended_revision == lived[-1].ended_revision
            assert one.ended == {"registered": "superseded"}.get(lived[-1].ended_by or "", lived[-1].ended_by)
        assert told(one, events(messages))
    seen = {one.key for one in versions if since < one.began_revision <= until}
    assert compared(messages[:until], since).passing == len(seen - before.keys() - after.keys())


# ---- two states


texts = st.sampled_from(["", "a", "b", "a=1,b=2", "1.0000001"])
described = st.builds(
    Description,
    endpoints=st.lists(
        st.builds(Endpoint, name=st.sampled_from(["main", "admin"]), host=st.sampled_from(["10.0.0.1", "::1"]),
                  port=st.integers(80, 81), protocol=st.sampled_from(["tcp", "http"])),
        min_size=1, max_size=2,
    ).map(tuple),
    capabilities=st.lists(st.sampled_from("ab"), max_size=2).map(tuple),
    metadata=st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", "1,b=2"]), max_size=2),
    version=texts, zone=texts, weight=st.sampled_from([1.0, 2.0, 1.0000001]),
    heartbeat=st.sampled_from([5.0, 5.0001]), ttl=st.sampled_from([15.0, 20.0]),
)  # fmt: skip
states = st.builds(
    lambda said, **state: Instance(
        epoch="e", revision=1, namespace="default", service="s", id="i", **msgspec.structs.asdict(said), **state
    ),
    described,
    term=st.sampled_from("tu"),
    liveness=st.sampled_from(["up", "stale"]),
    health=st.sampled_from(["passing", "warning", "critical"]),
    mode=st.sampled_from(["serving", "draining", "maintenance"]),
    reason=texts,
)


@given(states, states)
def test_no_change_goes_untold_and_none_is_invented(before: Instance, after: Instance) -> None:
    fields = changes(before, after)
    assert set(fields) == {name for name in Instance.__struct_fields__ if getattr(before, name) != getattr(after, name)}
    words = list(differences(before, after))
    state = {"liveness", "health", "mode"}
    assert len(words) == len(fields.keys() - state) + bool(fields.keys() & state)


@given(states, st.sampled_from(sorted(set(Description.__struct_fields__))), described)
def test_one_field_is_told_as_two_values_that_differ(before: Instance, field: str, said: Description) -> None:
    after = msgspec.structs.replace(before, **{field: getattr(said, field)})
    for word in differences(before, after):
        name = {"endpoints": ""}.get(field, f"{field} ")
        old, _, new = word.removeprefix(name).partition(" -> ")
        assert old != new


# ---- figures


@pytest.mark.parametrize(
    ("share", "told"), [(1.0, "100%"), (0.99999999, "99.99%"), (0.5, "50.00%"), (1 / 3, "33.33%"), (0.0, "0.00%")]
)
def test_a_share_is_never_rounded_up(share: float, told: str) -> None:
    assert percent(share) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.0, "0s"), (0.04, "0s"), (4.25, "4.2s"), (59.6, "1m"), (90061.4, "1d1h1m1s")]
)
def test_a_length_of_time(seconds: float, told: str) -> None:
    assert span(seconds) == told
