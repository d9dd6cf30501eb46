"""What the last word on an instance means for the registration that owns it. Pure: no clock, no socket.

A registration lives one or more lives (terms), one after the other. `judge` says what to do about the last word on
its subject; `next_event` what is still to be said so that the log says what the owner wants.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from adsum.events.description import Description
from adsum.events.lifecycle import (
    Author,
    Deregistered,
    Event,
    Expired,
    Health,
    HealthChanged,
    Mode,
    ModeChanged,
    Registered,
    Updated,
)
from adsum.events.log import Word

__all__ = [
    "Continue",
    "Decision",
    "Life",
    "LookBack",
    "Register",
    "Standing",
    "Withdraw",
    "Yield",
    "begin",
    "begun_as",
    "counts",
    "judge",
    "judge_behind",
    "next_event",
    "obey",
    "overrules",
    "speaks_for",
    "standing_after",
]


class Life(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a registration knows of its own lives.

    `terms`: all it ever tried to begin. `current`: the one it lives, known to be in the log, begun at or before
    sequence `begun`. `attempt`: one that was sent and not acknowledged. `look`: the sequence of the last word when it
    first looked in this log (None: not yet). `fresh`: nothing of it can be in the log.
    """

    terms: tuple[str, ...] = ()
    current: str = ""
    begun: int = 0
    attempt: str = ""
    look: int | None = None
    fresh: bool = True

    def looked(self, word: Word | None) -> Life:
        """After a look; only the first one in a log counts."""
        if self.look is not None:
            return self
        return msgspec.structs.replace(self, look=word.sequence if word is not None else 0)

    def attempting(self, term: str) -> Life:
        """About to send the Registered of a new life."""
        terms = self.terms if term in self.terms else (*self.terms, term)
        return msgspec.structs.replace(self, terms=terms, attempt=term, current="")

    def doubtful(self) -> Life:
        """What was sent may be in the log: from here on it yields to whoever came after its first look."""
        return msgspec.structs.replace(self, fresh=False)

    def begun_at(self, term: str, sequence: int) -> Life:
        """The life `term` is in the log."""
        return msgspec.structs.replace(self, current=term, begun=sequence, attempt="", fresh=False)

    def ended(self) -> Life:
        """The current life is over; the next one is a re-registration."""
        return msgspec.structs.replace(self, current="", attempt="", fresh=False)

    def in_another_log(self) -> Life:
        """The log became another one: what was said there before does not stop it, so it looks anew."""
        return msgspec.structs.replace(self.ended(), look=None, begun=0)

    @property
    def since(self) -> int:
        """The sequence above which a foreign life was begun later than ours."""
        return max(self.begun, self.look or 0)


class Register(NamedTuple):
    """Begin a new life, on the condition that the last word is at sequence `after` (0: none)."""

    after: int


class Continue(NamedTuple):
    """The life `term` is there; the last word on it is at sequence `after`."""

    term: str
    after: int


class Yield(NamedTuple):
    """A later registration of the same id, term `by`, has it."""

    by: str


class Withdraw(NamedTuple):
    """An operator removed it."""

    by: Author
    reason: str


class LookBack(NamedTuple):
    """The last word is a stray: look at all that was said above sequence `since`, then `judge_behind`."""

    since: int


Decision: TypeAlias = Register | Continue | Yield | Withdraw


def judge(life: Life, word: Word | None) -> Decision | LookBack:
    """What the last word on the subject means for a registration that looked at least once (`Life.looked`)."""
    if word is None:
        return Register(0)
    event, sequence = word.event, word.sequence
    if event is not None and event.term in life.terms:
        return _judge_own(life, event, sequence)
    if life.fresh or sequence <= life.since:
        return Register(sequence)
    return Yield(event.term) if isinstance(event, Registered) else LookBack(life.since)


def counts(life: Life, event: Event | None) -> bool:
    """Whether a word is of us or begins a foreign life. Any other is a stray: it has no effect on us."""
    return event is not None and (event.term in life.terms or isinstance(event, Registered))


def judge_behind(life: Life, word: Word | None, last: int) -> Decision:
    """What `word` means, the last one that counts (None: none was said since), when strays go on up to `last`."""
    if word is None:
        return Continue(life.current, last) if life.current else Register(last)
    decision = judge(life, word)
    assert not isinstance(decision, LookBack)  # it counts
    return decision._replace(after=last) if isinstance(decision, Register | Continue) else decision


def _judge_own(life: Life, event: Event, sequence: int) -> Decision:
    match event:
        case Deregistered(by=by, reason=reason) if by.kind == "operator":
            return Withdraw(by, reason)
        case Expired() | Deregistered():
            return Register(sequence)
        case _ if event.term in (life.current, life.attempt):
            return Continue(event.term, sequence)
        case _:
            return Register(sequence)


class Standing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All that an owner says of its instance: as it should be, or as the log has it."""

    description: Description
    health: Health = "passing"
    health_reason: str = ""
    mode: Mode = "serving"
    mode_reason: str = ""


def begin(wanted: Standing, term: str, by: Author) -> Registered:
    """The event that begins the life `term`."""
    return Registered(id=term, term=term, by=by, instance=wanted.description, health=wanted.health, mode=wanted.mode)


def next_event(wanted: Standing, said: Standing, term: str, id: str, by: Author) -> Event | None:
    """The next event that brings the log nearer to what is wanted; None when it says so already."""
    if wanted.description != said.description:
        return Updated(id=id, term=term, by=by, instance=wanted.description)
    if (wanted.health, wanted.health_reason) != (said.health, said.health_reason):
        return HealthChanged(id=id, term=term, by=by, health=wanted.health, reason=wanted.health_reason)
    if (wanted.mode, wanted.mode_reason) != (said.mode, said.mode_reason):
        return ModeChanged(id=id, term=term, by=by, mode=wanted.mode, reason=wanted.mode_reason)
    return None


def begun_as(event: Registered) -> Standing:
    """What the log says once a life was begun. A Registered tells no reasons."""
    return Standing(description=event.instance, health=event.health, mode=event.mode)


def standing_after(said: Standing, event: Event) -> Standing:
    """What the log says once `event` of the same life is in it."""
    replace = msgspec.structs.replace
    match event:
        case Registered():
            return begun_as(event)
        case Updated(instance=description):
            return replace(said, description=description)
        case HealthChanged(health=health, reason=reason):
            return replace(said, health=health, health_reason=reason)
        case ModeChanged(mode=mode, reason=reason):
            return replace(said, mode=mode, mode_reason=reason)
        case _:
            return said


def obey(wanted: Standing, said: Standing, found: Standing) -> Standing:
    """What is wanted once the log was found to say `found` where it was thought to say `said`: operators spoke.

    Their word becomes the owner's will, except that a change of the owner's that is still to be said stands.
    """
    health, mode = wanted, wanted
    if (wanted.health, wanted.health_reason) == (said.health, said.health_reason):
        health = found
    if (wanted.mode, wanted.mode_reason) == (said.mode, said.mode_reason):
        mode = found
    return Standing(
        description=wanted.description,
        health=health.health,
        health_reason=health.health_reason,
        mode=mode.mode,
        mode_reason=mode.mode_reason,
    )


def speaks_for(event: Event) -> bool:
    """Whether an operator set health or mode with this word."""
    return event.by.kind == "operator" and isinstance(event, HealthChanged | ModeChanged)


def overrules(event: Event) -> bool:
    """Whether a prober said this of its health, which is neither the owner's will nor an order to it.

    It stands until the prober takes it back, the owner says something else of its health, or the life ends.
    """
    return event.by.kind == "prober" and isinstance(event, HealthChanged)
