"""`adsum why`: every kind of event as a sentence, and the facts in it, from what the real fold made of them."""

from __future__ import annotations

import random
import re

import msgspec
import pytest

from adsum.clients.cli.story import Told, now, tell
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Deregistered, HealthChanged, Lapsed, ModeChanged, Registered, Silence
from adsum.events.names import Key
from adsum.events.reader import Message
from tests.catalog.story import OWNER, REAPER, Story, key
from tests.making import description

from .past import events_of, versions_of

ANN = Author("operator", "ann@desk")
WHO = key(1)


def told(messages: list[Message], who: Key = WHO) -> list[Told]:
    return tell(events_of(messages, who), [one for one in versions_of(messages) if one.key == who])


def ending(messages: list[Message], who: Key = WHO) -> str:
    versions = [one for one in versions_of(messages) if one.key == who]
    return now(versions, tell(events_of(messages, who), versions)).text


def say(story: Story, kind: type, **said: object) -> Message:
    """An event about the life that lasts."""
    term = said.pop("term", story.terms[WHO])
    return story.say(WHO, kind(**{"id": new_id(), "term": term, "by": OWNER, **said}))


def timed(messages: list[Message], *times: float) -> list[Message]:
    assert len(messages) == len(times)
    return [message._replace(time=time) for message, time in zip(messages, times, strict=True)]


# ---- sentences


def test_a_whole_life() -> None:
    story = Story()
    silence = Silence(counter=41, silent=15.25, ttl=15.0)
    messages = [
        story.register(WHO, version="1.4"),
        story.update(WHO, version="1.5", weight=2.0),
        say(story, HealthChanged, health="critical", reason="disk full"),
        say(story, ModeChanged, mode="draining", reason="kernel update", by=ANN),
        say(story, Lapsed, by=REAPER, evidence=silence),
        story.resume(WHO),
        story.lapse(WHO),
        story.expire(WHO),
    ]
    term = story.terms[WHO]
    facts = told(timed(messages, 0, 1, 2, 3, 100, 140.5, 200, 3725))
    assert [one.text for one in facts] == [
        f"Life 1 (term {term}) began: its owner (orders-7f) registered it at 10.0.0.7:8080 "
        "(payments, version 1.4, pod=a, ttl 15s).",
        "Its owner (orders-7f) changed 10.0.0.7:8080 -> 10.0.0.8:8081; capabilities payments -> none; "
        "version 1.4 -> 1.5; weight 1 -> 2; metadata pod=a -> none.",
        "Its owner (orders-7f) said that its health is critical (disk full); it was passing.",
        "An operator (ann@desk) set its mode to draining (kernel update); it was serving.",
        "Nothing was heard of it for 15.2s since heartbeat 41, more than its TTL of 15s: "
        "the reaper (node-1) declared it stale.",
        "It was heard again, heartbeat 7, after it had been stale for 40s.",
        "Nothing was heard of it for 16.2s since heartbeat 7, more than its TTL of 15s: "
        "the reaper (node-1) declared it stale.",
        "Nothing was heard of it for 16.2s since heartbeat 7, more than twice its TTL of 15s: "
        "the reaper (node-1) declared it gone, and life 1 ended after 1h2m5s.",
    ]
    assert all(one.effect and one.life == 1 and one.term == term for one in facts)
    assert facts[1].changes["version"] == ("1.4", "1.5")
    assert facts[2].changes == {"health": ("passing", "critical"), "reason": ("", "disk full")}
    assert (facts[3].author, facts[3].reason) == (ANN, "kernel update")
    assert (facts[4].evidence, facts[5].lasted, facts[7].lasted) == (silence, 40.5, 3725.0)
    assert ending(messages) == "It is gone: life 1 expired."


def test_lives_that_follow_on_each_other() -> None:
    story = Story()
    messages = [story.register(WHO, version="1")]
    first = story.terms[WHO]
    messages.append(story.register(WHO, version="2"))
    second = story.terms[WHO]
    messages += [
        say(story, HealthChanged, term=first, health="critical"),  # the old process has not noticed yet
        say(story, Deregistered, by=ANN, reason="wrong build"),
        say(story, HealthChanged, health="critical"),
        story.register(WHO, version="2"),
        story.leave(WHO),
    ]
    facts = told(timed(messages, 0, 60, 61, 65, 66, 125, 126))
    place = "10.0.0.7:8080 (payments, version 2, pod=a, ttl 15s)"
    assert [one.text for one in facts[1:]] == [
        f"Life 2 (term {second}) began and superseded life 1, whose process is told to stop: "
        f"its owner (orders-7f) registered it at {place}; compared with life 1: version 1 -> 2.",
        f"Its owner (orders-7f) said: critical; that changed nothing, since it is about another life (term {first}).",
        "An operator (ann@desk) deregistered it (wrong build): life 2 ended after 5s, and its process is told to stay "
        "away.",
        "Its owner (orders-7f) said: critical; that changed nothing, since it was gone.",
        f"Life 3 (term {story.terms[WHO]}) began, 1m after life 2 had ended: its owner (orders-7f) registered it at "
        f"{place}.",
        "Its owner (orders-7f) deregistered it: life 3 ended after 1s.",
    ]
    assert [one.life for one in facts] == [1, 2, 2, 2, 2, 3, 3]
    assert [one.effect for one in facts] == [True, True, False, True, False, True, True]
    assert facts[1].changes == {"version": ("1", "2"), "term": (first, second)}
    assert facts[1].lasted == 60.0
    assert ending(messages) == "It is gone: life 3 was deregistered."


def test_what_is_said_again_changes_nothing() -> None:
    story = Story()
    messages = [story.register(WHO), story.health(WHO, "disk full"), story.health(WHO, "disk full")]
    assert told(messages)[2].text == (
        "Its owner (orders-7f) said: critical (disk full); that changed nothing, since it was so already."
    )
    early = Story()
    early.terms[WHO] = new_id()
    assert told([early.lapse(WHO)])[0].text == (
        "The reaper (node-1) said: lapsed, silent for 16.2s since heartbeat 7; that changed nothing: it was not there."
    )


def test_one_that_begins_in_trouble_and_was_never_heard() -> None:
    story, term = Story(), new_id()
    begun = Registered(id=term, term=term, by=OWNER, instance=description(), health="warning", mode="maintenance")
    messages = [story.say(WHO, begun)]
    assert told(messages)[0].text.endswith("registered it at 127.0.0.1:8080 (ttl 15s, warning, maintenance).")
    assert ending(messages) == (
        "It is there and must not be called: its health is warning, said its owner (orders-7f); "
        "its mode is maintenance, said its owner (orders-7f)."
    )
    story.terms[WHO] = term
    messages.append(say(story, Lapsed, by=REAPER, evidence=Silence(counter=0, silent=15.5, ttl=15.0)))
    assert "for 15.5s and no heartbeat ever was, more than its TTL" in told(messages)[1].text


def test_what_this_program_cannot_read_is_told_as_such() -> None:
    story = Story()
    messages = [story.register(WHO)]
    logged = events_of(messages, WHO)
    newer = msgspec.structs.replace(logged[0], revision=2, event=msgspec.Raw(b'{"type":"promoted"}'))
    text = tell([*logged, newer], versions_of(messages))[1].text
    assert text.startswith("Something that cannot be read here: ")


def test_what_was_removed_is_replaced_by_what_it_had_led_to() -> None:
    story = Story()
    messages = [story.register(WHO), story.health(WHO, "disk full"), story.leave(WHO), story.register(WHO)]
    kept = events_of(messages[2:], WHO)
    facts = tell(kept, [one for one in versions_of(messages) if one.ended_revision != 2])
    assert facts[0].text == (
        "It had registered before what is kept begins, and was critical, at 10.0.0.7:8080 (payments, pod=a, ttl 15s)."
    )
    assert [(one.type, one.life) for one in facts] == [("kept", 1), ("deregistered", 1), ("registered", 2)]


# ---- what it is now


def test_now_says_what_keeps_it_from_being_called_and_since_when() -> None:
    story = Story()
    messages = [
        story.register(WHO),
        story.health(WHO, "disk full"),
        say(story, ModeChanged, mode="draining", by=ANN),
        story.lapse(WHO),
        story.health(WHO, "disk still full"),
    ]
    versions = versions_of(timed(messages, 0, 10, 20, 30, 40))
    found = now(versions, tell(events_of(messages, WHO), versions))
    assert found.why == (
        "it is stale, for nothing was heard of it since heartbeat 7 for longer than its TTL of 15s",
        "its health is critical, said its owner (orders-7f): disk full",
        "its mode is draining, said an operator (ann@desk)",
    )
    assert (found.present, found.routable, found.state, found.since) == (True, False, "stale,critical,draining", 10)
    again = [story.register(WHO)._replace(time=50.0)]
    found = now(versions_of(messages + again), tell(events_of(messages + again, WHO), versions_of(messages + again)))
    assert (found.routable, found.since) == (True, 50.0)
    again.append(story.register(WHO)._replace(time=60.0))
    found = now(versions_of(messages + again), tell(events_of(messages + again, WHO), versions_of(messages + again)))
    assert found.since == 60.0  # each life for itself
    healthy = [story.register(WHO), say(story, HealthChanged, health="warning", reason="slow")]
    assert ending(messages + healthy) == (
        "It is up and can be called, at 10.0.0.7:8080; its health is warning, said its owner (orders-7f): slow."
    )


@pytest.mark.parametrize("seed", range(20))
def test_any_history_is_told_whole_and_in_order(seed: int) -> None:
    """One sentence an event; the lives are those that registered; an effect is told where the fold saw one."""
    dice, story = random.Random(seed), Story()
    messages = []
    for _ in range(60):
        who = dice.choice([WHO, key(2)])
        deeds = [story.update, story.health, story.lapse, story.resume, story.expire, story.leave]
        fresh = who not in story.terms or dice.random() < 0.2
        messages.append(story.register(who, version=str(dice.random())) if fresh else dice.choice(deeds)(who))
    versions = [one for one in versions_of(messages) if one.key == WHO]
    logged = events_of(messages, WHO)
    facts = tell(logged, versions)
    assert [one.revision for one in facts] == [one.revision for one in logged]
    steps = {one.began_revision for one in versions} | {one.ended_revision for one in versions} - {None}
    assert {one.revision for one in facts if one.effect} == steps
    assert max(one.life for one in facts) == sum(one.began_by == "registered" for one in versions)
    assert all(re.fullmatch(r"[A-Z].*\.", one.text) for one in facts)
    found = now(versions, facts)
    assert found.present == (versions[-1].ended_revision is None)
    assert found.routable == (found.present and versions[-1].routable)
    assert bool(found.why) == (found.present and not found.routable)
