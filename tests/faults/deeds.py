"""What the machine does to the spine: words said by hand, faults, and a process of the clients' library.

Whatever is acknowledged the model is told of at once; what it means the model finds when it reads the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Literal, TypeAlias, get_args

from adsum.clients import LifeEnded, Registration
from adsum.events import subjects
from adsum.events.codec import encode
from adsum.events.description import MAX_TTL, Description
from adsum.events.ids import new_id
from adsum.events.lifecycle import Deregistered, Event, HealthChanged, Registered, Updated
from adsum.events.names import Key
from adsum.events.signals import Heartbeat
from adsum.events.streams import EVENTS
from adsum.projector.failpoints import Point
from tests.faults.content import digest
from tests.faults.model import Life, Model
from tests.faults.spine import PROCESS, SERVICE, Spine
from tests.making import OPERATOR, OWNER, description
from tests.waiting import until

__all__ = ["KEYS", "WORDS", "Deeds", "Word"]

Word: TypeAlias = Literal["update", "register", "leave"]
WORDS: tuple[Word, ...] = get_args(Word)

KEYS = [Key("default", SERVICE, id) for id in ("a", "b", "c")]
SHORT_TTL = 0.6
"""Seconds. Who falls silent is stale with the next tick or the one after, and gone as soon after that."""
AGREED_WITHIN = 30.0


class Deeds:
    """`registered`: the registrations of the process, until they were told of their end. `said`: all words by hand."""

    def __init__(self, spine: Spine, model: Model) -> None:
        self.spine, self.model = spine, model
        self.registered: dict[Key, tuple[Registration, AsyncExitStack]] = {}
        self.said: list[tuple[Key, bytes]] = []
        self._counters: dict[str, int] = {}
        self._revisions: dict[str, int] = {}
        self._versions = 0

    # ---- words

    async def say(self, key: Key, event: Event) -> None:
        """Say it, and tell the model where it was stored."""
        self.said.append((key, encode(event)))
        self.model.acknowledged(key, event, await self.spine.say(key, event))

    async def store(self, key: Key, payload: bytes) -> None:
        """Put it into the log, whatever was said before."""
        sequence = await self.spine.broker.store(EVENTS, subjects.event(key), payload, {})
        self.model.acknowledged(key, payload, sequence)

    async def register(self, key: Key) -> None:
        """Begin a life by hand. It need not beat during an example, unless it falls silent."""
        term = new_id()
        await self.say(key, Registered(id=term, term=term, by=OWNER, instance=self.new_description()))
        await self.beat(key, term)

    async def update(self, key: Key, life: Life, ttl: float | None = None) -> None:
        """Describe it anew, with another TTL or the one it has."""
        said = self.new_description(ttl or life.description.ttl)
        await self.say(key, Updated(id=new_id(), term=life.term, by=OWNER, instance=said))

    async def beat(self, key: Key, term: str) -> None:
        """One heartbeat, received by the broker."""
        self._counters[term] = self._counters.get(term, 0) + 1
        await self.spine.broker.publish(subjects.beat(key, term), encode(Heartbeat(self._counters[term])))
        await self.spine.broker.flush()

    async def words(self, words: Sequence[Word]) -> None:
        """Say them at once, each of another instance; each changes something."""
        await asyncio.gather(*map(self._word, KEYS, words))

    async def _word(self, key: Key, word: Word) -> None:
        life = self.model.lives.get(key)
        if life is None or word == "register" or life.term in self.model.silent:
            await self.register(key)
        elif word == "leave":
            await self.say(key, Deregistered(id=new_id(), term=life.term, by=OPERATOR))
        elif life.owner == PROCESS:
            reason = f"reason {new_id()}"
            await self.say(
                key, HealthChanged(id=new_id(), term=life.term, by=OPERATOR, health="warning", reason=reason)
            )
        else:
            await self.update(key, life)

    def new_description(self, ttl: float = MAX_TTL) -> Description:
        """One that nobody had before."""
        return description(heartbeat=ttl / 3, ttl=ttl, version=self._new_version())

    def _new_version(self) -> str:
        self._versions += 1
        return f"1.{self._versions}"

    # ---- silence

    def mortals(self) -> list[Key]:
        """Those who beat only if a test beats for them."""
        return [key for key, life in self.model.in_order() if life.owner != PROCESS]

    async def fall_silent(self, key: Key) -> None:
        """It beats no more."""
        life = self.model.lives[key]
        self.model.silent.add(life.term)
        await self.update(key, life, ttl=SHORT_TTL)

    async def come_back(self, key: Key, *, late: bool) -> None:
        """It beats again, at once or when it is stale, and is up again or gone."""
        life = self.model.lives[key]
        if late:
            await self.read_log_until(lambda: self.model.lives.get(key) is not life or life.liveness == "stale")
        self.model.back.add(life.term)
        await self.beat(key, life.term)
        await self.update(key, life, ttl=MAX_TTL)

        def settled() -> bool:
            now = self.model.lives.get(key)
            return now is None or now.term != life.term or now.liveness == "up"

        await self.read_log_until(settled)
        self.model.silent.discard(life.term)
        self.model.back.discard(life.term)

    def silent(self) -> list[Key]:
        """Those who are there and fell silent."""
        return [key for key, life in self.model.in_order() if life.term in self.model.silent]

    async def read_log_until(self, wanted: Callable[[], bool]) -> None:
        """Let the model follow the log until something is so."""

        async def look() -> bool:
            self.model.read(await self.spine.log(self.model.at + 1))
            return wanted()

        await until(look, seconds=AGREED_WITHIN)

    # ---- faults

    async def restart(self, words: Sequence[Word]) -> None:
        """The projector ends politely and begins again; words are said between."""
        await self.spine.stop()
        await self.words(words)
        await self.spine.start()

    async def kill(self, words: Sequence[Word]) -> None:
        """kill -9 at once after some words."""
        await self.words(words)
        await self.spine.kill()
        await self.spine.start()

    async def kill_at(self, point: Point, times: int, words: Sequence[Word]) -> None:
        """kill -9 at a point, however many words it takes until the projector comes there."""
        self.spine.order(point, times)
        for _ in range(20):
            await self.words(words)
            if await self.spine.died(within=1.0):
                break
            self.model.read(await self.spine.log(self.model.at + 1))
        await self.spine.buried()
        await self.spine.start()

    async def cut_cache(self, words: Sequence[Word]) -> None:
        """The cache loses its connection, words are said, it may connect again."""
        self.spine.before_cache.cut()
        await self.words(words)
        self.spine.before_cache.heal()

    # ---- a process of the clients' library

    async def register_process(self, key: Key) -> None:
        """It registers this id, whoever has it."""
        registration = self.spine.process.register(
            SERVICE, port=8080, id=key.id, heartbeat=1.0, ttl=60.0, version=self._new_version()
        )
        stack = AsyncExitStack()
        self.registered[key] = await stack.enter_async_context(registration), stack

    async def update_process(self, key: Key) -> None:
        """It says something new of itself."""
        registration, _ = self.registered[key]
        with suppress(LifeEnded):  # others may end it meanwhile
            await registration.update(version=self._new_version())

    async def cut_process(self, key: Key, *, noticed: bool) -> None:
        """Its connection is lost, noticed or not when it says something new of itself; others speak meanwhile."""
        self.spine.before_process.cut()
        if noticed:
            await until(lambda: not self.spine.process.broker.connected)
        updating = asyncio.create_task(self.update_process(key))
        await self.words(("update", "register"))
        self.spine.before_process.heal()
        await updating

    async def end_process(self, key: Key) -> None:
        """The process leaves the block of this registration."""
        _, stack = self.registered.pop(key)
        await stack.aclose()

    async def end(self) -> None:
        """The process ends."""
        for key in list(self.registered):
            await self.end_process(key)

    # ---- what must hold

    async def agree(self) -> None:
        """Wait until model, catalog, cache, and a fold of the log from zero hold the same."""
        deadline = time.monotonic() + AGREED_WITHIN
        while (differs := await self._disagreement()) is not None:
            if time.monotonic() > deadline:
                told = "\n".join(self.model.told)
                raise AssertionError(f"{differs}\n\nthe log:\n{told}\n\nadsumd:\n{self.spine.daemon.stderr[-4000:]}")
            await asyncio.sleep(0.02)
        self._check_revisions()

    async def _disagreement(self) -> str | None:
        self.model.read(await self.spine.log(self.model.at + 1))
        model = {key.id: life.shown() for key, life in self.model.lives.items()}
        if self.spine.cache.state == "loading":
            return "the cache is loading"
        for name, found in (("catalog", await self.spine.in_catalog()), ("cache", self.spine.in_cache())):
            if digest(found) != digest(model):
                return f"the {name} differs from the model\n{name}: {found}\nmodel: {model}"
        return await self._unsettled() or await self.spine.unlike_refold()

    async def _unsettled(self) -> str | None:
        """Which registration does not know yet what became of it."""
        for key, (me, stack) in list(self.registered.items()):
            life = self.model.lives.get(key)
            if life is not None and life.owner == PROCESS:
                said = (life.term, life.description.version, life.health, life.mode)
                wants = (me.term, me.description.version, me.standing.health, me.standing.mode)
                if me.state != "registered" or said != wants:
                    return f"{key.id} is {me.state}; it wants {wants}, the log says {said}"
            elif me.state in ("superseded", "removed"):
                del self.registered[key]
                await stack.aclose()
            else:
                return f"{key.id} is {me.state}, and there is {life}"
        return None

    def _check_revisions(self) -> None:
        """Of each instance that the cache told of, what came later was newer."""
        for change in self.spine.changes:
            told = change.after or change.departed
            if told is not None:
                assert told.revision > self._revisions.get(told.id, 0), f"not newer than what was known: {change}"
                assert told.epoch == self.spine.epoch
                self._revisions[told.id] = told.revision
        self.spine.changes.clear()
