"""Every interleaving of the words of two lives of one id: the fold, the hearing and the judge of the real projection,
without a broker and without a clock. Words come in any order and as late as they like, verdicts among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_heartbeat, encode
from adsum.events.lifecycle import Deregistered, Event, Expired, Registered, Silence
from adsum.events.reader import Message
from adsum.events.signals import Heartbeat, Tick
from adsum.projector.beats import BeatReader
from adsum.projector.catalog import Catalog
from adsum.projector.fold import fold_batch
from adsum.projector.projection import Projection
from adsum.projector.reaper import verdict
from adsum.projector.record import Record
from adsum.projector.silence import judge
from tests.making import OWNER, REAPER, description, key

TTL = 3.0
KEY = key()
TERMS = ("01970000-0000-7000-8000-000000000002", "01970000-0000-7000-8000-000000000001")
"""The second life's is the lower one: ids order nothing."""
LATER_THAN_ANY_CLOCK = 1e9
"""Ticks are read at times above this machine's monotonic clock, so that it adds nothing of its own."""

Kind: TypeAlias = Literal["register", "beat", "goodbye", "expiry"]
Observing: TypeAlias = Literal["fold", "hear", "tick"]


class Word(NamedTuple):
    """Something said of a life, by its process or by a reaper."""

    kind: Kind
    life: int


WORDS = [
    Word(kind, life) for life in (0, 1) for kind in cast(list[Kind], ["register", "beat", "beat", "goodbye", "expiry"])
]
OBSERVING = st.lists(st.sampled_from(cast(list[Observing], ["fold", "hear", "tick", "tick"])), max_size=4)
STORIES = st.permutations(WORDS).flatmap(
    lambda words: st.tuples(*(OBSERVING for _ in words)).map(lambda between: list(zip(words, between, strict=True)))
)


class NoCatalog:
    """The projection writes nothing down here."""

    name = "none"
    untidy = False


class World:
    """What was said, and a projection that has read some of it. All of it is about one id."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.beaten = dict.fromkeys(TERMS, 0)
        self.unheard: list[Message] = []
        self.folded = self.ticks = 0
        self.heard_at: dict[tuple[str, int], float] = {}
        self.beats = BeatReader(cast(Broker, None), lambda: None)
        self.projection = Projection(cast(Broker, None), cast(Catalog, NoCatalog()), "epoch", self.beats)

    @property
    def record(self) -> Record | None:
        """Who the projection takes to be there."""
        return self.projection.writer.records.get(KEY)

    @property
    def clock(self) -> float:
        """The observed clock."""
        return self.beats.clock.value

    # ---- what is said

    def say(self, word: Word) -> None:
        """A word is stored, whatever was said before."""
        term = TERMS[word.life]
        match word.kind:
            case "register":
                said = description(heartbeat=TTL / 3, ttl=TTL)
                self.log.append(Registered(id=term, term=term, by=OWNER, instance=said))
            case "goodbye":
                self.log.append(Deregistered(id=f"goodbye {term}", term=term, by=OWNER))
            case "expiry":
                silence = Silence(counter=0, silent=2 * TTL, ttl=TTL)
                self.log.append(Expired(id=f"expiry {term}", term=term, by=REAPER, evidence=silence))
            case "beat":
                self.beaten[term] += 1
                beat = encode(Heartbeat(self.beaten[term]))
                self.unheard.append(Message(subjects.beat(KEY, term), beat, 0, 0.0))

    # ---- what is observed

    def note(self, term: str, counter: int) -> None:
        """When the first of a life and each of its heartbeats was first read, told without the hearing."""
        self.heard_at.setdefault((term, counter), self.clock)

    def observe(self, what: Observing) -> None:
        """One step of the projector."""
        before = self.record
        if what == "fold":
            self.fold(1)
        elif what == "hear" and self.unheard:
            message = self.unheard.pop(0)
            self.beats._take(message, LATER_THAN_ANY_CLOCK + self.ticks)
            self.note(subjects.beat_term(message.subject), decode_heartbeat(message.data).counter)
        elif what == "tick":
            self.ticks += 1
            tick = Message(subjects.TICK, encode(Tick(leader="it", number=self.ticks)), 0, 0.0)
            self.beats._take(tick, LATER_THAN_ANY_CLOCK + self.ticks)
            self.judge()
        if what != "fold":
            assert self.record is before, "only the log says who is there"

    def fold(self, most: int) -> None:
        """Fold the next events."""
        events = self.log[self.folded : self.folded + most]
        if not events:
            return
        numbered = enumerate(events, start=self.folded + 1)
        messages = [Message(subjects.event(KEY), encode(event), sequence, 0.0) for sequence, event in numbered]
        self.folded += len(events)
        self.projection.writer._apply(fold_batch(self.projection.writer.records, messages))
        for event in events:
            if isinstance(event, Registered):
                self.note(event.term, 0)

    def judge(self) -> None:
        """Say what the reaper would: after a last look, and only where nobody spoke since."""
        suspicions = [judge(one, self.beats.hearing, self.clock) for one in self.projection.writer.records.values()]
        for suspicion in filter(None, suspicions):
            term = suspicion.record.term
            if self.beaten[term] > suspicion.evidence.counter and suspicion.finding != "resumed":
                self.beats.hearing.hear(term, self.beaten[term], self.clock)
                self.note(term, self.beaten[term])
            elif suspicion.record.last == len(self.log):
                silent = self.clock - self.heard_at[term, suspicion.evidence.counter]
                assert suspicion.finding != "expired" or silent > 2 * TTL, "heard within two TTLs"
                self.log.append(verdict(suspicion, REAPER))

    def catch_up(self) -> None:
        """Fold and hear all that was said."""
        self.fold(len(self.log))
        while self.unheard:
            self.observe("hear")


def there(events: list[Event]) -> str | None:
    """The term of who is there, told without the fold: who registered last, unless its own life was ended since."""
    begun = [place for place, event in enumerate(events) if isinstance(event, Registered)]
    if not begun:
        return None
    term = events[begun[-1]].term
    ended = any(isinstance(event, Deregistered | Expired) and event.term == term for event in events[begun[-1] :])
    return None if ended else term


def told(story: list[tuple[Word, list[Observing]]]) -> Iterator[World]:
    """The world after each word and each step."""
    world = World()
    for word, steps in story:
        world.say(word)
        yield world
        for step in steps:
            world.observe(step)
            yield world
    world.catch_up()
    yield world


@given(STORIES, st.booleans())
@settings(max_examples=400)
def test_row_02_every_interleaving_of_two_lives(story: list[tuple[Word, list[Observing]]], lives: bool) -> None:
    """Who is there is who registered last, unless its own life was ended; nothing that is heard changes that. Whoever
    is there in the end expires when it falls silent, however much the other one beats, and stays while it beats.
    """
    for world in told(story):
        record = world.record
        assert (record.term if record is not None else None) == there(world.log[: world.folded])
        if record is not None:
            heard = world.beats.hearing.of(record.term)
            assert heard is not None, "who is there can fall silent"
            assert heard[0] <= world.beaten[record.term]
    term = world.record.term if world.record is not None else None
    for _ in range(int(3 * TTL) + 2):
        if lives and term is not None:
            world.say(Word("beat", TERMS.index(term)))
        for other in {0, 1} - ({TERMS.index(term)} if term is not None else set()):
            world.say(Word("beat", other))
        world.catch_up()
        world.observe("tick")
        world.catch_up()
        assert world.record is None or world.record.term == term, "nobody comes back by beating"
        assert not lives or (world.record.term if world.record is not None else None) == term
    assert lives or world.record is None
    assert not lives or world.record is None or world.record.liveness == "up"
