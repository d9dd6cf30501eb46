"""Doing what a schedule says, and undoing it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tests.cluster import Node
from tests.soak.program import Program
from tests.soak.schedule import Step
from tests.soak.world import DAEMONS, Link, World

__all__ = ["carry_out"]

Undo: TypeAlias = Callable[[], Awaitable[None]]
DELAY = 0.4
"""Seconds by which a slow network holds up each chunk, each way."""


async def carry_out(world: World, steps: tuple[Step, ...]) -> int:
    """All steps, each at its time and undone after its time; how many were done."""
    done = 0
    busy: set[str] = set()

    async def one(step: Step) -> None:
        nonlocal done
        await asyncio.sleep(step.at)  # the schedule's own time
        name = _resolve(world, step.target)
        if name in busy:
            world.recorder.write("skipped", **step._asdict())
            return
        busy.add(name)
        try:
            undo = await _begin(world, step.fault, name)
            world.recorder.write("fault", **step._asdict(), name=name)
            done += 1
            await asyncio.sleep(step.seconds)  # the schedule's own time
            await undo()
            world.recorder.write("undone", fault=step.fault, name=name)
        finally:
            busy.discard(name)

    async with asyncio.TaskGroup() as tasks:
        for step in steps:
            tasks.create_task(one(step))
    return done


def _resolve(world: World, target: str) -> str:
    if target == "leader":
        return world.leader()
    if target == "other":
        return next(name for name in DAEMONS if name != world.leader())
    return target


async def _begin(world: World, fault: str, name: str) -> Undo:
    if name == "broker":
        return await _stop_broker(world, fault)
    if name == "database":
        return await _stop_database(world, fault)
    if name.startswith("node-"):
        return await _stop_node(world, fault, name)
    if fault == "lose":
        world.lost.add(name)
        world.recorder.write("lost", process=name)
        await world.programs[name].kill()
        return _nothing
    if fault in ("kill", "end", "pause"):
        return await _stop_program(world.programs[name], fault)
    return _disturb(world.links[name], fault)


async def _nothing() -> None:
    """It stays as it is."""


async def _stop_program(program: Program, fault: str) -> Undo:
    if fault == "pause":
        program.signal(signal.SIGSTOP)

        async def go_on() -> None:
            program.signal(signal.SIGCONT)

        return go_on
    await (program.kill() if fault == "kill" else program.end())
    return program.start


async def _stop_broker(world: World, fault: str) -> Undo:
    server = world.server
    assert server is not None
    if fault == "pause":
        server.pause()

        async def go_on() -> None:
            server.go_on()

        return go_on
    world.recorder.write("crashed", target="broker")
    await server.kill(signal.SIGKILL if fault == "kill" else signal.SIGTERM)

    async def start() -> None:
        await server.start()

    return start


async def _stop_node(world: World, fault: str, name: str) -> Undo:
    node: Node = world.nodes[int(name.removeprefix("node-"))]
    if fault == "pause":
        node.signal(signal.SIGSTOP)

        async def go_on() -> None:
            node.signal(signal.SIGCONT)

        return go_on
    world.recorder.write("crashed", target=name)
    await node.stop(signal.SIGKILL if fault == "kill" else signal.SIGTERM)
    return node.start


async def _stop_database(world: World, fault: str) -> Undo:
    database = world.database
    assert database is not None
    await asyncio.to_thread(database.crash if fault == "crash" else database.pause)

    async def back() -> None:
        await asyncio.to_thread(database.start if fault == "crash" else database.resume)

    return back


def _disturb(link: Link, fault: str) -> Undo:
    for proxy in link.proxies:
        if fault == "cut":
            proxy.cut()
        elif fault == "drop":
            proxy.drop()
        elif fault == "delay":
            proxy.delay = {"up": DELAY, "down": DELAY}
        else:
            _, _, way = fault.partition("-")
            proxy.blackhole(*([way] if way else []))  # type: ignore[list-item]  # the names of both are the same

    async def heal() -> None:
        for proxy in link.proxies:
            proxy.heal()

    return heal
