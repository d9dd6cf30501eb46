"""What owns everything said about an instance: it brings the log to say what the owner wants, turn by turn.

It is woken by the owner, by hints (a change or a mark that tells of something unknown to it) and by reconnects; once
a TTL it looks at the last word by itself (see `turns`). What a word means is decided in `life`; here is only the doing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Iterator

from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.errors import BrokerRefused, BrokerUnavailable, StreamMismatch, Unacknowledged
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Deregistered, Event, Registered
from adsum.events.log import Outrun, Word, last_word, words
from adsum.events.names import Key
from adsum.events.outage import Outage
from adsum.events.reader import ReaderLost
from adsum.events.signals import Instance, Topology
from adsum.events.together import SharedLog

from .errors import LifeEnded, Removed, Superseded
from .life import (
    Continue,
    Life,
    Register,
    Standing,
    Withdraw,
    Yield,
    begin,
    begun_as,
    next_event,
    obey,
    overrules,
    speaks_for,
    standing_after,
)
from .loading import ASKED_EVERY
from .looking import understand
from .notice import Notice, connection

__all__ = ["REMEDY", "Reconciler"]

GOODBYE_LIMIT = 4.0
"""Seconds that leaving may take."""

TROUBLE = (BrokerUnavailable, BrokerRefused, StreamMismatch, ReaderLost)
"""What the broker may do to whoever asks it; to be tried again."""

REMEDY = "look at the broker and at what it allows this user; it is tried for ever and needs no restart"

log = logging.getLogger("adsum.registration")


class Reconciler:
    """`wanted` is what the owner wants said. `given`: the id was given, so somebody may have had it before.

    Called back: `prepare` before each pass, connected; `complete` fills in what only a standing connection tells (the
    host); `begun` when a life is in the log. `notice` tells of every change of `term`, `end` and `settled`.
    """

    def __init__(
        self,
        broker: Broker,
        shared: SharedLog,
        key: Key,
        wanted: Standing,
        by: Author,
        *,
        given: bool,
        outage: Outage,
        prepare: Callable[[], Awaitable[None]],
        complete: Callable[[Standing], Standing],
        begun: Callable[[], None],
    ) -> None:
        self.key, self.wanted, self.notice = key, wanted, Notice()
        self.said: Standing | None = None
        self.term = ""
        self.end: LifeEnded | None = None
        self.told: Topology | None = None
        self.asked = self.settled = 0
        self.goodbye = ""  # the reason that Deregistered will give
        self._broker, self._log, self._by = broker, shared, by
        self._prepare, self._complete, self._when_begun = prepare, complete, begun
        self._life = Life() if given else Life().looked(None)
        self._epoch, self._epoch_asked_at = "", -math.inf
        self._after = 0  # the sequence of the last word
        self._spoken = 0  # of the owner's own last word
        self._read_to = 0  # up to which every word of the life is known, and `_found` is what it comes to
        self._found = wanted
        self._shown = wanted  # the same with what a prober found, as the projector tells it
        self._pending: tuple[Registered, int] | None = None
        self._begin_after: int | None = None if given else 0
        self._look_due, self._epoch_due, self._read_due = given, True, False
        self._leaving = False
        self._delays: Iterator[float] | None = None  # while the broker gives trouble
        self.outage = outage
        self.wake: Callable[[], None] = lambda: None

    @property
    def registered(self) -> bool:
        """Whether a life is in the log, as far as is known, and none is being begun."""
        return self.end is None and bool(self._life.current)

    def want(self, wanted: Standing) -> int:
        """Change what is wanted; the number that `settled` reaches once the log says so."""
        self.wanted = wanted
        self.outage.alarm_after = wanted.description.ttl
        self.asked += 1
        self.wake()
        return self.asked

    def leave(self) -> None:
        """Say goodbye and end."""
        self._leaving = True
        self.notice.tell()
        self.wake()

    def reconnected(self) -> None:
        """Anything may have happened meanwhile."""
        self._look_due = self._epoch_due = True
        self.wake()

    def hint_epoch(self, epoch: str) -> None:
        """Somebody spoke of an epoch; one above ours means that the log may be another one.

        It is asked every two seconds at most, whoever speaks how often: the leader of another log repeats itself.
        """
        asked_now = asyncio.get_running_loop().time() - self._epoch_asked_at < ASKED_EVERY
        if self._epoch and epoch > self._epoch and not asked_now:
            self._epoch_due = True
            self.wake()

    def hint(self, told: Topology) -> None:
        """The projector told of this instance. Only a hint: the log is asked."""
        if told.epoch < self._epoch:
            return
        self.told = told
        self.hint_epoch(told.epoch)
        if told.term != self._life.current or told.revision > self._after:
            self._look_due = True
            self.wake()
        elif isinstance(told, Instance) and told.revision >= self._spoken and self._differs(told):
            self._read_due = True
            self.wake()
        self.notice.tell()

    def _differs(self, told: Instance) -> bool:
        return self.said is not None and (told.health, told.mode) != (self._shown.health, self._shown.mode)

    def rested(self) -> None:
        """Nobody woke it for as long as `turn` said: then it looks at the last word by itself."""
        self._look_due = self._look_due or self._delays is None

    async def turn(self) -> float | None:
        """Try to have the log say what is wanted, or goodbye; the seconds after which to try, or look, again.

        None: it is over, the life was ended by others, or goodbye was said as well as could be.
        """
        if self.end is None and not self._leaving:
            try:
                await self._reconcile()
            except TROUBLE as error:
                self.outage.goes_on(error, self._broker.outage.lasted)
                self._delays = self._delays or backoff()
                return next(self._delays)
            self.outage.over()
            self._delays = None
            if self.end is None and not self._leaving:
                return self.wanted.description.ttl * random.uniform(0.75, 1)
        if self.end is None:
            await self._say_goodbye()
        return None

    async def _reconcile(self) -> None:
        """One pass: when it returns, the log says what is wanted, or the life is over."""
        await connection(self._broker)
        await self._prepare()
        while self.end is None and not self._leaving:
            asked = self.asked
            self.wanted = self._complete(self.wanted)
            if self._epoch_due:
                await self._settle_epoch()
            elif self._look_due:
                await self._look()
            elif self._begin_after is not None:
                await self._begin(self._begin_after)
            elif self._read_due:
                await self._read_on()
            elif (event := self._unsaid()) is not None:
                await self._say(event)
            else:
                self.settled = asked
                self.notice.tell()
                return

    def _unsaid(self) -> Event | None:
        assert self.said is not None  # a life that was begun was begun by a Registered of ours
        if self.wanted == self.said:
            return None  # most of the time, and an id costs a call of the system
        return next_event(self.wanted, self.said, self._life.current, new_id(), self._by)

    async def _settle_epoch(self) -> None:
        """Learn the log's epoch; in another one everything is said anew, spread over a heartbeat."""
        self._epoch_asked_at = asyncio.get_running_loop().time()
        epoch = await self._log.epoch()
        if self._epoch and epoch != self._epoch:
            log.warning(
                "%s: the log is another one (epoch %s, was %s): registering again", self.key, epoch, self._epoch
            )
            self._life = self._life.in_another_log()
            self._pending, self._look_due = None, True
            self._epoch = epoch
            await self.notice.until(lambda: self._leaving, random.uniform(0, self.wanted.description.heartbeat))
        self._epoch, self._epoch_due = epoch, False

    async def _look(self) -> None:
        word = await last_word(self._broker, self.key)
        self._look_due = False
        await self._act(word)

    async def _act(self, word: Word | None) -> None:
        """Do what the last word means."""
        self._life = self._life.looked(word)
        try:
            word, decision = await understand(self._broker, self.key, self._life, word, self._known())
        except (BrokerUnavailable, BrokerRefused, ReaderLost):
            self._look_due = True
            raise
        if isinstance(decision, Yield) and await self._in_another_log():
            return
        match decision:
            case Register(after=after):
                self._lose(word, after)
            case Continue(term=term, after=after):
                self._go_on(term, after, word)
            case Yield(by=by):
                self._end(Superseded(self.key, self.term, by))
            case Withdraw(by=by, reason=reason):
                self._end(Removed(self.key, self.term, by.name, reason))

    def _known(self) -> tuple[int, ...]:
        """Words that left the life alive: the last one that was looked at, and one that the projector folded so."""
        told = self.told
        alive = isinstance(told, Instance) and (told.epoch, told.term) == (self._epoch, self._life.current)
        return (self._after, told.revision) if alive and told is not None else (self._after,)

    async def _in_another_log(self) -> bool:
        """Whether the word just read was said in another log than the one this life was begun in."""
        before = self._epoch
        self._look_due = True  # should asking fail, the word is to be looked at again
        await self._settle_epoch()
        if self._epoch == before:
            self._look_due = False
        return self._epoch != before

    def _lose(self, word: Word | None, after: int) -> None:
        if self._life.current:
            said = type(word.event).__name__ if word is not None and word.event is not None else "nothing"
            log.warning("%s: the life %s is over (%s), registering again", self.key, self._life.current, said)
            self._life = self._life.ended()
        self._begin_after = after
        self.notice.tell()

    def _go_on(self, term: str, after: int, word: Word | None) -> None:
        if term == self._life.attempt and self._pending is not None:
            self._adopt(self._pending[0], after)
        event = word.event if word is not None else None
        if event is not None and after > self._after and (speaks_for(event) or event.by == self._by):
            self._read_due = True
        if isinstance(self.told, Instance) and self.told.term == term and self._differs(self.told):
            self._read_due = self._read_due or self.told.revision >= self._spoken
        self._after = after

    async def _read_on(self) -> None:
        """Read all words since the last one known: an operator's, which the last one may hide, and the owner's own that
        were not acknowledged and are there. The life is read whole: what is only said once more counts for nothing."""
        assert self.said is not None  # only of a life that was begun is there anything to read
        own, found, shown, read_to = self.said, self._found, self._shown, self._read_to
        counted = {self._life.current}
        for word in await words(self._broker, self.key, self._life.begun):
            read_to = word.sequence
            event = word.event
            if event is None or event.term != self._life.current or event.id in counted:
                continue
            counted.add(event.id)
            if word.sequence > self._read_to:
                shown = standing_after(shown, event)
                found = found if overrules(event) else standing_after(found, event)
                own = standing_after(own, event) if event.by.kind == "owner" else own
        self.wanted = obey(self.wanted, own, found)
        self.said, self._found, self._shown = found, found, shown
        self._read_to, self._read_due = max(read_to, self._read_to), False

    async def _begin(self, after: int) -> None:
        """Say Registered. What was sent and not acknowledged is sent again as it was, or it would be two lives."""
        if self._pending is None or self._pending[1] != after:
            self._pending = begin(self.wanted, new_id(), self._by), after
        event = self._pending[0]
        self._life = self._life.attempting(event.term)
        try:
            sequence = await self._log.say(self.key, event, after)
        except Outrun as outrun:
            await self._act(outrun.last)
            return
        except Unacknowledged:
            self._life = self._life.doubtful()
            self._look_due = True
            raise
        except (BrokerUnavailable, BrokerRefused):
            self._look_due = True
            raise
        self._adopt(event, sequence)

    def _adopt(self, event: Registered, sequence: int) -> None:
        self._life = self._life.begun_at(event.term, sequence)
        self._pending, self._begin_after = None, None
        self.said = self._found = self._shown = begun_as(event)
        self.term, self._after, self._spoken, self._read_to = event.term, sequence, sequence, sequence
        self._read_due = False
        log.info("%s: registered at revision %d, term %s", self.key, sequence, event.term)
        self.notice.tell()
        self._when_begun()

    async def _say(self, event: Event) -> None:
        assert self.said is not None
        try:
            sequence = await self._log.say(self.key, event, self._after)
        except Outrun as outrun:
            await self._act(outrun.last)
            return
        except (BrokerUnavailable, BrokerRefused):
            self._look_due = self._read_due = True  # it may be there: to be read, not to be said twice
            raise
        self.said = standing_after(self.said, event)
        if self._read_to == self._after:  # nobody spoke in between, or it would have been refused
            self._read_to, self._found = sequence, self.said
        self._shown = standing_after(self._shown, event)
        self._after = self._spoken = sequence

    def _end(self, end: LifeEnded) -> None:
        log.error("%s", end)
        self.end = end
        self.notice.tell()

    async def _say_goodbye(self) -> None:
        """Say Deregistered, if there is a life to end. Bounded; what cannot be said the reaper finds out."""
        try:
            async with asyncio.timeout(GOODBYE_LIMIT):
                while self._life.current or self._life.attempt:
                    if await self._try_goodbye():
                        return
        except (TimeoutError, *TROUBLE) as error:
            told = str(error) or f"no answer within {GOODBYE_LIMIT:g} s"
            log.warning("%s: left without saying so, it will expire by itself: %s", self.key, told)

    async def _try_goodbye(self) -> bool:
        if not self._broker.connected:
            await self._broker.ready(0)
        if self._life.attempt:
            await self._act(await last_word(self._broker, self.key))
        if not self._life.current or self.end is not None:
            return True
        event = Deregistered(id=new_id(), term=self._life.current, by=self._by, reason=self.goodbye)
        try:
            await self._log.say(self.key, event, self._after)
        except Outrun as outrun:
            await self._act(outrun.last)
            return self.end is not None or not self._life.current
        return True
