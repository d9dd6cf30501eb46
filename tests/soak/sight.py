"""What one observer showed, held against the log. Imports nothing of the product.

For each instance the observer stands at some position of the log, which only grows: showing a state puts it at least
at that revision, showing nobody at a position where nobody is there. Where no position fits, the log never had what
was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.soak.history import Fact
from tests.soak.story import State, Story

__all__ = ["Sight", "visible"]

Tell = Callable[[str, str], None]
FIELDS = ("term", "liveness", "health", "mode", "reason")


def visible(key: str, story: Story, following: Fact) -> bool:
    """Whether an observer who follows these services or this capability is to see an instance."""
    capability = following["capability"]
    if capability is not None:
        state = next((state for state in story.states if state is not None), None)
        return state is not None and capability in state.description.get("capabilities", ())
    return not following["services"] or key.split("/")[1] in following["services"]


class Sight:
    """`stories` are those of the instances that it is to see; `head` gives the end of the log at a time; `tell(check,
    what)` is called for what is wrong."""

    def __init__(self, stories: dict[str, Story], head: Callable[[float], int], tell: Tell) -> None:
        self.stories, self._head, self._tell = stories, head, tell
        self.shown: dict[str, Fact] = {}
        self.loaded = False
        self._positions: dict[str, int] = {}
        self._told: dict[str, int] = {}

    def floor(self, key: str, revision: int) -> None:
        """The observer had to know of this revision of an instance before it showed anything of it."""
        self._positions[key] = max(self._positions.get(key, 0), revision)

    def view(self, fact: Fact) -> None:
        """It showed something else than before."""
        at = fact["at"]
        if fact["state"] == "loading":
            if fact.get("shown") or fact.get("gone") or self.loaded:
                self._tell("set", f"showed a set or had shown one while loading, at {at:.3f}")
            return
        for shown in fact.get("shown", ()):
            key = f"{shown['namespace']}/{shown['service']}/{shown['id']}"
            self.shown[key] = shown
            self._present(key, shown, at)
        for key in fact.get("gone", ()):
            self.shown.pop(key, None)
            self._absent(key, at)
        if not self.loaded:
            self.loaded = True
            for key in self.stories.keys() - self.shown.keys():
                self._absent(key, at)

    def must_know(self, key: str, revision: int, at: float) -> None:
        """What it calls complete at `at` has to tell of this revision of an instance, or of a later one."""
        if key not in self.stories:
            return
        self.floor(key, revision)
        shown = self.shown.get(key)
        if shown is None:
            self._absent(key, at)
        elif self.stories[key].next_after(shown["revision"]) <= revision:
            self._tell("set", f"calls itself live at {at:.3f} and shows {key} at {shown['revision']}, not {revision}")

    def change(self, fact: Fact) -> None:
        """`changes()` gave a difference: it follows on what it gave before."""
        key, before, after = fact["key"], fact["before"], fact["after"]
        if self._told.get(key) != before:
            self._tell(
                "backwards", f"a change of {key} begins at {before}, the one before ended at {self._told.get(key)}"
            )
        self._told.pop(key, None)
        if after is not None:
            self._told[key] = after

    def told(self) -> dict[str, int]:
        """Who is there and at which revision, by what `changes()` gave."""
        return dict(self._told)

    def _present(self, key: str, shown: Fact, at: float) -> None:
        revision, story = shown["revision"], self.stories.get(key)
        state = story.begun_at(revision) if story is not None else None
        if story is None or state is None:
            self._tell("set", f"shows {key} at revision {revision}, where the log begins no state of it")
            return
        if revision > self._head(at):
            self._tell("set", f"shows {key} at revision {revision} when the log ended at {self._head(at)}")
        wrong = list(_differences(shown, state))
        if wrong:
            self._tell("backwards", f"shows {key} at revision {revision} otherwise than the log: {'; '.join(wrong)}")
        position = self._positions.get(key, 0)
        if story.next_after(revision) <= position:
            self._tell("backwards", f"shows {key} at revision {revision} at {at:.3f}, though it stood at {position}")
        self.floor(key, revision)

    def _absent(self, key: str, at: float) -> None:
        story = self.stories.get(key)
        if story is None:
            return
        position, head = self._positions.get(key, 0), self._head(at)
        found = story.absent_within(position, max(position, head))
        if found is None:
            self._tell("set", f"does not show {key} at {at:.3f}, which the log has from {position} to {head}")
        else:
            self.floor(key, found)


def _differences(shown: Fact, state: State) -> Iterable[str]:
    pairs: list[tuple[str, Any, Any]] = [(name, shown[name], getattr(state, name)) for name in FIELDS]
    pairs += [(name, shown.get(name), value) for name, value in state.description.items()]
    return (f"{name} {is_!r}, not {should!r}" for name, is_, should in pairs if is_ != should)
