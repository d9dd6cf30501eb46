"""A state machine over the real spine, with a dict as its model.

Each rule is what a service, an operator or a fault does, and returns once it was done, not once its effect is seen.
After each rule the model, the catalog and the cache must come to agree, and the catalog must be what its log alone
makes of an empty one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Deregistered, Health, HealthChanged, Mode, ModeChanged, Updated
from adsum.events.names import Key
from adsum.projector.failpoints import POINTS, Point
from tests.databases import NewDatabase
from tests.faults.actor import Actor
from tests.faults.deeds import KEYS, WORDS, Deeds, Word
from tests.faults.model import Life, Model
from tests.faults.spine import PROCESS, running_spine
from tests.making import OPERATOR, OWNER

__all__ = ["SpineMachine"]

ids = st.sampled_from(KEYS)
picks = st.integers(0, 5)
"""Which one of those that there are: the number modulo how many."""
authors = st.sampled_from([OWNER, OPERATOR])
words = st.sampled_from(WORDS)

somebody = precondition(lambda machine: machine.model.lives)
a_process = precondition(lambda machine: machine.deeds.registered)
somebody_silent = precondition(lambda machine: machine.deeds.silent())
a_fault = precondition(lambda machine: machine.faults > 0)


class SpineMachine(RuleBasedStateMachine):
    """`faults`: how many rules of an example may restart, kill, cut, or let somebody fall silent; each costs a second.

    `patient`: also do what takes longer.
    """

    deeds: Deeds

    def __init__(self, new_database: NewDatabase, faults: int, *, patient: bool) -> None:
        super().__init__()
        self.model = Model([PROCESS])
        self.faults, self.patient = faults, patient
        self._new_database = new_database
        self._actor = Actor()
        self._stack = AsyncExitStack()
        self._sound = False

    @initialize()
    def begin(self) -> None:
        """Everything is started anew for each example, so that each can be repeated."""
        self._do(self._begin())

    async def _begin(self) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="adsum-machine-")))
        database = await self._new_database(folder)
        self.deeds = Deeds(await self._stack.enter_async_context(running_spine(folder, database)), self.model)
        self._stack.push_async_callback(self.deeds.end)
        for key in (*KEYS[:2], KEYS[0]):  # most rules need somebody who is there, or who was
            await self.deeds.register(key)

    def teardown(self) -> None:
        """Unless something failed: all who fell silent are gone in the end. Then end what was started."""
        try:
            if self._sound:
                self.let_the_silent_go()
                self.all_agree()
        finally:
            self._end()

    @invariant()
    def all_agree(self) -> None:
        """Model, catalog, cache and a fold of the log from zero hold the same; revisions at the cache only grew."""
        self._do(self.deeds.agree())

    # ---- what services and operators say

    @rule(key=ids)
    def register(self, key: Key) -> None:
        """Somebody begins a life."""
        self._do(self.deeds.register(key))

    @somebody
    @rule(pick=picks)
    def register_a_duplicate(self, pick: int) -> None:
        """A second process takes an id that somebody has."""
        self._do(self.deeds.register(self._pick(pick)[0]))

    @somebody
    @rule(pick=picks)
    def update(self, pick: int) -> None:
        """Somebody describes itself anew."""
        key, life = self._pick(pick)
        if life.owner == PROCESS:
            self._do(self.deeds.update_process(key))
        else:
            self._do(self.deeds.update(key, life))

    @somebody
    @rule(pick=picks, health=st.sampled_from(["passing", "warning", "critical"]), by=authors)
    def change_health(self, pick: int, health: Health, by: Author) -> None:
        """Somebody's health changes, or is said once more."""
        key, life = self._pick(pick)
        by = self._author(life, by)
        self._do(self.deeds.say(key, HealthChanged(id=new_id(), term=life.term, by=by, health=health)))

    @somebody
    @rule(pick=picks, mode=st.sampled_from(["serving", "draining"]), by=authors)
    def change_mode(self, pick: int, mode: Mode, by: Author) -> None:
        """Somebody's mode changes, or is said once more."""
        key, life = self._pick(pick)
        by = self._author(life, by)
        self._do(self.deeds.say(key, ModeChanged(id=new_id(), term=life.term, by=by, mode=mode)))

    @somebody
    @rule(pick=picks)
    def beat(self, pick: int) -> None:
        """Somebody's heartbeat."""
        key, life = self._pick(pick)
        if life.owner != PROCESS and life.term not in self.model.silent:
            self._do(self.deeds.beat(key, life.term))

    @somebody
    @rule(pick=picks, by=authors)
    def deregister(self, pick: int, by: Author) -> None:
        """Somebody leaves, or is removed by an operator."""
        key, life = self._pick(pick)
        by = self._author(life, by)
        self._do(self.deeds.say(key, Deregistered(id=new_id(), term=life.term, by=by)))

    # ---- what comes late, comes twice, or cannot be read

    @precondition(lambda machine: machine.model.old_lives())
    @rule(pick=picks, kind=st.sampled_from(["beat", "updated", "health-changed", "deregistered"]))
    def speak_for_an_old_life(self, pick: int, kind: str) -> None:
        """Somebody speaks for a life that is over, or that another one followed."""
        old = self.model.old_lives()
        key, term = old[pick % len(old)]
        match kind:
            case "beat":
                self._do(self.deeds.beat(key, term))
            case "updated":
                said = self.deeds.new_description()
                self._do(self.deeds.say(key, Updated(id=new_id(), term=term, by=OWNER, instance=said)))
            case "health-changed":
                self._do(self.deeds.say(key, HealthChanged(id=new_id(), term=term, by=OWNER, health="critical")))
            case _:
                self._do(self.deeds.say(key, Deregistered(id=new_id(), term=term, by=OWNER)))

    @rule(pick=st.integers(0, 50))
    def redeliver(self, pick: int) -> None:
        """An event comes once more, when the broker has forgotten its id, and without its condition."""
        said = self.deeds.said
        self._do(self.deeds.store(*said[-1 - pick % len(said)]))

    @rule(key=ids, payload=st.sampled_from([b"", b"no json", b'{"type":"promoted","id":"x"}', b"\xff\0"]))
    def store_junk(self, key: Key, payload: bytes) -> None:
        """Something that cannot be read."""
        self._do(self.deeds.store(key, payload))

    # ---- silence

    @a_fault
    @precondition(lambda machine: machine.deeds.mortals())
    @rule(pick=picks, junk=st.booleans())
    def fall_silent(self, pick: int, junk: bool) -> None:
        """Somebody beats no more, perhaps with a last message that cannot be read. Verdicts come in later steps."""
        mortals = self.deeds.mortals()
        self.faults -= 1
        key = mortals[pick % len(mortals)]
        self._do(self.deeds.fall_silent(key))
        if junk:
            self._do(self.deeds.store(key, b"no json"))

    @somebody_silent
    @rule(pick=picks, late=st.booleans())
    def be_heard_again(self, pick: int, late: bool) -> None:
        """Somebody who fell silent beats again, in time or too late."""
        silent = self.deeds.silent()
        self._do(self.deeds.come_back(silent[pick % len(silent)], late=late))

    @somebody_silent
    @rule()
    def let_the_silent_go(self) -> None:
        """Time passes until all who fell silent are gone."""
        self._do(self.deeds.read_log_until(lambda: not self.deeds.silent()))

    # ---- faults of the projector and of the network

    @a_fault
    @rule(words=st.lists(words, max_size=3))
    def restart_the_projector(self, words: list[Word]) -> None:
        """It ends politely, words are said, it begins again."""
        self.faults -= 1
        self._do(self.deeds.restart(words))

    @a_fault
    @rule(words=st.lists(words, min_size=1, max_size=3))
    def kill_the_projector(self, words: list[Word]) -> None:
        """kill -9 with words under way."""
        self.faults -= 1
        self._do(self.deeds.kill(words))

    @a_fault
    @rule(point=st.sampled_from(POINTS), times=st.integers(1, 2), words=st.lists(words, min_size=1, max_size=3))
    def kill_the_projector_at(self, point: Point, times: int, words: list[Word]) -> None:
        """kill -9 between two steps of a transaction, the n-th time it comes there."""
        self.faults -= 1
        self._do(self.deeds.kill_at(point, times, words))

    @a_fault
    @rule(words=st.lists(words, max_size=3))
    def cut_the_cache(self, words: list[Word]) -> None:
        """The cache's connection is lost while words are said."""
        self.faults -= 1
        self._do(self.deeds.cut_cache(words))

    # ---- a process of the clients' library

    @rule(key=ids)
    def register_a_process(self, key: Key) -> None:
        """A real registration, which speaks for itself from now on; whoever had the id loses it."""
        if key not in self.deeds.registered:
            self._do(self.deeds.register_process(key))

    @a_fault
    @a_process
    @rule(pick=picks)
    def cut_a_process(self, pick: int) -> None:
        """Its connection is lost, and its owner describes it anew meanwhile."""
        self._cut_a_process(pick, noticed=True)

    @a_fault
    @a_process
    @precondition(lambda machine: machine.patient)
    @rule(pick=picks)
    def cut_a_process_while_it_speaks(self, pick: int) -> None:
        """The same, but what it says is on its way when the connection is lost: it waits 5 s for an answer."""
        self._cut_a_process(pick, noticed=False)

    @a_process
    @rule(pick=picks)
    def end_a_process(self, pick: int) -> None:
        """It leaves politely."""
        keys = list(self.deeds.registered)
        self._do(self.deeds.end_process(keys[pick % len(keys)]))

    # ---- helpers

    def _do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._sound = False
        self._actor.do(coroutine)
        self._sound = True

    def _end(self) -> None:
        try:
            self._actor.do(self._stack.aclose())
        finally:
            self._actor.end()

    def _cut_a_process(self, pick: int, *, noticed: bool) -> None:
        self.faults -= 1
        keys = list(self.deeds.registered)
        self._do(self.deeds.cut_process(keys[pick % len(keys)], noticed=noticed))

    def _pick(self, pick: int) -> tuple[Key, Life]:
        lives = self.model.in_order()
        return lives[pick % len(lives)]

    def _author(self, life: Life, by: Author) -> Author:
        """Nobody but an operator speaks for a process that speaks for itself."""
        return OPERATOR if life.owner == PROCESS else by
