"""Waiting until log, catalogs, topology, caches and services all say the same, and writing down what they say."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from typing import Any

import asyncpg
import nats.errors

from tests.soak.history import Row, Run, Tail
from tests.soak.observer import connected, last_of_each, read_log
from tests.soak.sight import visible
from tests.soak.story import Log, Story, tell
from tests.soak.validator import row_of, standing_of, view_of
from tests.soak.world import DAEMONS, World

__all__ = ["Settling"]

LOOK = 0.25
_INSTANCES = "SELECT namespace, service, instance, term, revision, liveness, health, mode FROM instances"
Rows = dict[str, list[Any]]


class Settling:
    """Looks at everything again and again. `log` is the broker's log as last read."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tails: dict[str, tuple[Tail, Run]] = {}
        self.log: list[Row] = []

    async def wait(self, limit: float) -> float:
        """Until all agree, at most `limit` seconds, and write down how it is; the seconds it took."""
        began = time.monotonic()
        client = await connected(self._world.url)
        try:
            while True:
                found = await self._look(client)
                took = time.monotonic() - began
                if not found["why"] or took > limit:
                    self._world.recorder.write("settled", converged=not found["why"], took=round(took, 3), **found)
                    return took
                await asyncio.sleep(LOOK)
        finally:
            await client.close()

    async def read(self) -> list[Row]:
        """The log as it is now."""
        client = await connected(self._world.url)
        try:
            return await read_log(client)
        finally:
            await client.close()

    async def _look(self, client: Any) -> dict[str, Any]:
        """What everybody holds, and in `why` what does not agree."""
        why: list[str] = []
        try:
            topology = {
                _key(one): [one[name] for name in ("term", "revision", "liveness", "health", "mode")]
                for one in await last_of_each(client)
                if one["type"] == "present"
            }
            self.log = await read_log(client)
            catalogs = await self._catalogs()
        except (TimeoutError, OSError, sqlite3.Error, asyncpg.PostgresError, nats.errors.Error) as error:
            return {"why": [f"cannot be read: {error!r}"], "sequence": 0, "catalogs": {}, "topology": {}}
        folded = tell(self.log)
        sequence = self.log[-1].sequence if self.log else 0
        present = folded.present(sequence)
        expected = {key: row_of(*found) for key, found in present.items()}
        for name, held in {**catalogs, "topology": topology}.items():
            why += _differences(name, held, expected)
        self._read_records()
        why += self._services(expected)
        why += self._watchers(folded, expected)
        return {"why": why[:20], "sequence": sequence, "catalogs": catalogs, "topology": topology}

    def _services(self, expected: Rows) -> list[str]:
        wanted: dict[str, list[Any]] = {}
        for name, (_, run) in self._tails.items():
            if name.startswith("service") and name not in self._world.lost:
                for key, one in standing_of(run).items():
                    wanted[key] = [one["term"], one["health"], one["mode"]]
        held = {key: [row[0], *row[3:]] for key, row in expected.items()}
        stale = [f"{key} is stale" for key, row in expected.items() if row[2] != "up"]
        return stale + _differences("the services", wanted, held)

    def _watchers(self, folded: Log, expected: Rows) -> list[str]:
        why = []
        for program in self._world.named("watcher"):
            _, run = self._tails.get(program.name, (None, Run(program.name, 0, [])))
            following = next((fact for fact in run.facts if fact["fact"] == "following"), None)
            state, shown = view_of(run)
            if following is None or state != "live":
                why.append(f"{program.name} is {state}")
                continue
            seen = {
                key: [row[1]]
                for key, row in expected.items()
                if visible(key, folded.stories.get(key, Story()), following)
            }
            why += _differences(program.name, {key: [one["revision"]] for key, one in shown.items()}, seen)
        return why

    def _read_records(self) -> None:
        """Read on in the record of the latest run of each program."""
        for program in (*self._world.named("service"), *self._world.named("watcher")):
            paths = sorted(
                self._world.record.glob(f"{program.name}.*.jsonl"), key=lambda path: int(path.suffixes[0][1:])
            )
            if not paths:
                continue
            tail, run = self._tails.get(program.name, (None, None))
            if tail is None or run is None or tail.path != paths[-1]:
                tail, run = Tail(paths[-1]), Run(program.name, len(paths), [])
                self._tails[program.name] = tail, run
            run.facts.extend(tail.more())

    async def _catalogs(self) -> dict[str, Rows]:
        if self._world.dsn is not None:
            connection = await asyncpg.connect(self._world.dsn, timeout=5)
            try:
                return {"postgres": _rows([tuple(row) for row in await connection.fetch(_INSTANCES)])}
            finally:
                await connection.close(timeout=5)
        return {name: await asyncio.to_thread(self._sqlite, name) for name in DAEMONS}

    def _sqlite(self, name: str) -> Rows:
        path = self._world.folder / name / "catalog.db"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return _rows(database.execute(_INSTANCES).fetchall())


def _rows(rows: list[tuple[Any, ...]]) -> Rows:
    return {f"{namespace}/{service}/{id}": list(rest) for namespace, service, id, *rest in rows}


def _key(told: dict[str, Any]) -> str:
    return f"{told['namespace']}/{told['service']}/{told['id']}"


def _differences(name: str, held: Rows, expected: Rows) -> list[str]:
    """What is held otherwise than expected, in words."""
    keys = sorted(key for key in held.keys() | expected.keys() if held.get(key) != expected.get(key))
    return [f"{name}: {key} is {held.get(key)}, the log has {expected.get(key)}" for key in keys]
