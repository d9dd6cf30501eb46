"""The story of one instance, in sentences and in fields, from its events and the versions that they began. Pure.

An event's effect is what the catalog made of it: the version that it ended and the one that it began. The sentences
tell that and judge nothing anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from adsum.events.codec import decode_event
from adsum.events.description import Description
from adsum.events.durations import format_duration
from adsum.events.errors import Undecodable
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Event,
    Expired,
    HealthChanged,
    Lapsed,
    ModeChanged,
    Registered,
    Resumed,
    Silence,
    Updated,
)
from adsum.events.questions import Logged, Version

from .comparing import changes, differences
from .log import UNREADABLE, type_of
from .past import instance_of, span, who
from .shown import address, condition, pairs

__all__ = ["KEPT", "Now", "Told", "now", "tell"]

KEPT = "kept"
"""The type of what stands for events that were removed: the state that they had led to."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as a sentence and as facts. `life` counts from 1; 0: before the first that is known.

    `effect`: whether anything changed by it. `changes`: each field before and after, also against the life before.
    `lasted`: seconds that what it ended had lasted: a life, or a silence (of one that resumed).
    """

    revision: int
    time: float
    type: str
    life: int
    term: str
    text: str
    author: Author | None = None
    effect: bool = True
    reason: str = ""
    evidence: Silence | None = None
    lasted: float | None = None
    changes: dict[str, tuple[Any, Any]] = {}


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance is at the end of its story. `state` is "gone" or as `adsum instances` shows it; `why`: what
    keeps it from being called, empty if nothing does; `since`: when it became so, as far as is known."""

    present: bool
    routable: bool
    state: str
    since: float
    text: str
    why: tuple[str, ...] = ()


class _Teller:
    """What was told so far, as far as the next sentence needs it."""

    def __init__(self) -> None:
        self.life = 0
        self.began_at = 0.0
        self.last: Version | None = None
        """The last version, of a life that lasts or ended."""
        self.present = False
        self.ended_at = 0.0

    def begins(self, version: Version) -> None:
        self.life += 1
        self.began_at = version.registered_at

    def moves(self, before: Version | None, after: Version | None, time: float) -> None:
        self.last = after or before or self.last
        if after is not None:
            self.present = True
        elif before is not None:
            self.present, self.ended_at = False, time


def tell(logged: Sequence[Logged], versions: Sequence[Version]) -> list[Told]:
    """Every event of an instance as a sentence, both in the order of the log.

    Where events were removed before the first of `logged`, the version that they had led to is told instead of them.
    """
    began = {version.began_revision: version for version in versions}
    ended = {version.ended_revision: version for version in versions}
    teller, story = _Teller(), []
    if versions and (not logged or versions[0].began_revision < logged[0].revision):
        story.append(_kept(teller, versions[0]))
    for one in logged:
        before, after = ended.get(one.revision), began.get(one.revision)
        try:
            event = decode_event(bytes(one.event))
        except Undecodable as error:  # what a newer program says, and this one cannot read
            text = f"Something that cannot be read here: {error}."
            story.append(_told(one, teller, UNREADABLE, text, effect=before is not None or after is not None))
        else:
            story.append(_sentence(teller, one, event, before, after))
        teller.moves(before, after, one.time)
    return story


def now(versions: Sequence[Version], story: Sequence[Told]) -> Now:
    """What became of an instance of which there are versions. `story` is what `tell` makes of them."""
    last = versions[-1]
    if last.ended_revision is not None:
        ended_at = last.ended_at or 0.0
        how = {"deregistered": "was deregistered"}.get(last.ended_by or "", last.ended_by)
        text = f"It is gone: life {story[-1].life} {how}."
        return Now(present=False, routable=False, state="gone", since=ended_at, text=text)
    state = condition(instance_of(last, "")).text
    since = _since(versions, "routable").began_at
    if last.routable:
        where = ", ".join(one.address for one in last.description.endpoints)
        warned = f"; {_health(versions, story)}" if last.health != "passing" else ""
        text = f"It is up and can be called, at {where}{warned}."
        return Now(present=True, routable=True, state=state, since=since, text=text)
    why = tuple(_obstacles(versions, story))
    return Now(
        present=True,
        routable=False,
        state=state,
        since=since,
        text=f"It is there and must not be called: {'; '.join(why)}.",
        why=why,
    )


# ---- sentences


def _kept(teller: _Teller, version: Version) -> Told:
    teller.begins(version)
    teller.moves(None, version, version.began_at)
    state = condition(instance_of(version, "")).text
    return Told(
        revision=version.began_revision,
        time=version.began_at,
        type=KEPT,
        life=teller.life,
        term=version.term,
        text=f"It had registered before what is kept begins, and was {state}, at {_described(version.description)}.",
    )


def _sentence(teller: _Teller, one: Logged, event: Event, before: Version | None, after: Version | None) -> Told:
    if before is None and after is None:
        text = f"{_capital(who(event.by))} said: {_words(event)}; {_why_nothing(teller, event)}."
        return _told(one, teller, type_of(event), text, event, effect=False)
    if isinstance(event, Registered):
        assert after is not None  # it always begins one
        return _registered(teller, one, event, before, after)
    assert before is not None  # all others act on somebody who is there
    if isinstance(event, Deregistered | Expired):
        return _ended(teller, one, event)
    assert after is not None  # only those two end a life
    old, new = instance_of(before, ""), instance_of(after, "")
    text = f"{_changed(teller, event, one, '; '.join(differences(old, new)), before)}."
    lasted = one.time - before.began_at if isinstance(event, Resumed) else None
    return _told(one, teller, type_of(event), text, event, lasted=lasted, changed=changes(old, new))


def _registered(teller: _Teller, one: Logged, event: Registered, before: Version | None, after: Version) -> Told:
    last, life = teller.last, teller.life
    teller.begins(after)
    text = f"Life {teller.life} (term {event.term}) began"
    if before is not None:
        text += f" and superseded life {life}, whose process is told to stop"
    elif last is not None:
        text += f", {span(max(0.0, one.time - teller.ended_at))} after life {life} had ended"
    text += f": {who(event.by)} registered it at {_words(event)}"
    changed = {}
    if last is not None:
        old, new = instance_of(last, ""), instance_of(after, "")
        changed = changes(old, new)
        described = list(differences(old, msgspec.structs.replace(new, **_state_of(last), term=last.term)))
        text += f"; compared with life {life}: {'; '.join(described)}" if described else ""
    lasted = one.time - before.registered_at if before is not None else None
    return _told(one, teller, "registered", f"{text}.", event, lasted=lasted, changed=changed)


def _state_of(version: Version) -> dict[str, Any]:
    """What a life does not say of itself when it begins: against the life before, it would say what is known."""
    names = ("liveness", "health", "mode", "reason")
    return {name: getattr(version, name) for name in names}


def _ended(teller: _Teller, one: Logged, event: Deregistered | Expired) -> Told:
    lasted = max(0.0, one.time - teller.began_at)
    ending = f"life {teller.life} ended after {span(lasted)}"
    if isinstance(event, Expired):
        evidence = event.evidence
        silence = f"{_silence(evidence)}, more than twice its TTL of {format_duration(evidence.ttl)}"
        text = f"{silence}: {who(event.by)} declared it gone, and {ending}"
    else:
        because = f" ({event.reason})" if event.reason else ""
        text = f"{_capital(who(event.by))} deregistered it{because}: {ending}"
        text += ", and its process is told to stay away" if event.by.kind == "operator" else ""
    return _told(one, teller, type_of(event), f"{text}.", event, lasted=lasted)


def _changed(teller: _Teller, event: Event, one: Logged, changed: str, before: Version) -> str:
    author = _capital(who(event.by))
    match event:
        case HealthChanged(health=health, reason=reason):
            because = f" ({reason})" if reason else ""
            return f"{author} said that its health is {health}{because}; it was {before.health}"
        case ModeChanged(mode=mode, reason=reason):
            because = f" ({reason})" if reason else ""
            return f"{author} set its mode to {mode}{because}; it was {before.mode}"
        case Lapsed(evidence=evidence):
            silence = f"{_silence(evidence)}, more than its TTL of {format_duration(evidence.ttl)}"
            return f"{silence}: {who(event.by)} declared it stale"
        case Resumed(evidence=evidence):
            stale = span(max(0.0, one.time - before.began_at))
            return f"It was heard again, heartbeat {evidence.counter}, after it had been stale for {stale}"
        case _:
            return f"{author} changed {changed}"


def _silence(evidence: Silence) -> str:
    heard = f"since heartbeat {evidence.counter}" if evidence.counter else "and no heartbeat ever was"
    return f"Nothing was heard of it for {evidence.silent:.1f}s {heard}"


def _words(event: Event) -> str:
    """What an event says, where it is quoted."""
    match event:
        case Registered():
            state = [one for one in (event.health, event.mode) if one not in ("passing", "serving")]
            return _described(event.instance, *state)
        case Updated():
            return _described(event.instance)
        case HealthChanged(health=what, reason=reason) | ModeChanged(mode=what, reason=reason):
            return f"{what} ({reason})" if reason else what
        case Lapsed(evidence=evidence) | Resumed(evidence=evidence) | Expired(evidence=evidence):
            return f"{type_of(event)}, silent for {evidence.silent:.1f}s since heartbeat {evidence.counter}"
        case Deregistered(reason=reason):
            return f"deregistered ({reason})" if reason else "deregistered"


def _described(description: Description, *state: str) -> str:
    """ "10.0.0.1:80 (payments, version 1.4, ttl 15s)" """
    weight = f"weight {description.weight:g}" if description.weight != 1 else ""
    named = [
        f"{name} {value}" for name, value in (("version", description.version), ("zone", description.zone)) if value
    ]
    said = [*description.capabilities, *named, weight, pairs(description.metadata)]
    told = [*(one for one in said if one), f"ttl {format_duration(description.ttl)}", *state]
    return f"{address(description)} ({', '.join(told)})"


def _why_nothing(teller: _Teller, event: Event) -> str:
    if not teller.present or teller.last is None:
        return "that changed nothing, since it was gone" if teller.last else "that changed nothing: it was not there"
    if event.term != teller.last.term:
        return f"that changed nothing, since it is about another life (term {event.term})"
    return "that changed nothing, since it was so already"


def _told(
    one: Logged,
    teller: _Teller,
    type: str,
    text: str,
    event: Event | None = None,
    *,
    effect: bool = True,
    lasted: float | None = None,
    changed: dict[str, tuple[Any, Any]] | None = None,
) -> Told:
    return Told(
        revision=one.revision,
        time=one.time,
        type=type,
        life=teller.life,
        term=event.term if event is not None else "",
        text=text,
        author=event.by if event is not None else None,
        effect=effect,
        reason=getattr(event, "reason", ""),
        evidence=getattr(event, "evidence", None),
        lasted=lasted,
        changes=changed or {},
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# ---- what it is now


def _obstacles(versions: Sequence[Version], story: Sequence[Told]) -> Iterator[str]:
    last = versions[-1]
    if last.liveness != "up":
        told = _event_at(story, _since(versions, "liveness").began_revision)
        evidence = told.evidence if told is not None else None
        ttl = format_duration(evidence.ttl if evidence is not None else last.description.ttl)
        counter = f" since heartbeat {evidence.counter}" if evidence is not None and evidence.counter else ""
        yield f"it is stale, for nothing was heard of it{counter} for longer than its TTL of {ttl}"
    if last.health != "passing":
        yield _health(versions, story)
    if last.mode != "serving":
        yield f"its mode is {last.mode}{_said(versions, story, 'mode')}"


def _health(versions: Sequence[Version], story: Sequence[Told]) -> str:
    return f"its health is {versions[-1].health}{_said(versions, story, 'health')}"


def _said(versions: Sequence[Version], story: Sequence[Told], field: str) -> str:
    """By whom a field was set to what it is, and why."""
    told = _event_at(story, _since(versions, field).began_revision)
    if told is None or told.author is None:
        return ""
    return f", said {who(told.author)}" + (f": {told.reason}" if told.reason else "")


def _event_at(story: Sequence[Told], revision: int) -> Told | None:
    return next((told for told in story if told.revision == revision), None)


def _since(versions: Sequence[Version], field: str) -> Version:
    """The version of the last life from which on a field was what it is."""
    last = found = versions[-1]
    for version in reversed(versions):
        if version.term != last.term or getattr(version, field) != getattr(last, field):
            break
        found = version
    return found
