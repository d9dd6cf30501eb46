"""The whole stack of compose.yaml: the watcher hears of a killed service, whoever of the two daemons is left."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import docker
import pytest

from tests.containers.compose import Stack, compose_command
from tests.waiting import until

DAEMONS = ("adsumd-1", "adsumd-2")


@pytest.fixture(scope="module")
def stack(engine: docker.DockerClient) -> Iterator[Stack]:
    """The stack, up; all of it is removed afterwards."""
    command = compose_command()
    if command is None:
        pytest.skip("neither `docker compose` nor `docker-compose` is installed")
    stack = Stack(command, f"adsum-test-{secrets.token_hex(4)}")
    try:
        stack.up()
        yield stack
    finally:
        stack.down()


def watched(stack: Stack) -> list[list[str]]:
    """The watcher's lines as columns: change, service, id, state and what more there is."""
    lines = [line.split("|", 1)[-1].split() for line in stack.log("watcher").splitlines()]
    return [words[1:] for words in lines if len(words) > 4 and words[0][:2] == "20"]


def heard(stack: Stack, change: str, *words: str) -> list[list[str]]:
    """The watcher's lines of this kind in which all the words stand."""
    return [line for line in watched(stack) if line[0] == change and all(word in " ".join(line) for word in words)]


async def test_everything_becomes_healthy(stack: Stack, engine: docker.DockerClient) -> None:
    checked = ("nats", "postgres", *DAEMONS, "web-1", "web-2")

    def states() -> dict[str, str]:
        return {
            name: engine.containers.get(stack.container(name)).attrs["State"]["Health"]["Status"] for name in checked
        }

    await until(states, lambda seen: set(seen.values()) == {"healthy"}, seconds=90)
    ports = engine.containers.get(stack.container("nats")).attrs["NetworkSettings"]["Ports"]
    assert {bound["HostIp"] for bindings in ports.values() for bound in bindings or []} == {"127.0.0.1"}


async def test_a_killed_daemon_and_a_killed_service(stack: Stack, engine: docker.DockerClient) -> None:
    await until(lambda: heard(stack, "joined"), lambda joined: len(joined) == 2, seconds=60)
    leaders = await until(
        lambda: [daemon for daemon in DAEMONS if "leading from tick" in stack.log(daemon)], seconds=30
    )
    networks = engine.containers.get(stack.container("web-1")).attrs["NetworkSettings"]["Networks"]
    address = next(iter(networks.values()))["IPAddress"]
    [joined] = heard(stack, "joined", address)
    killed = joined[2]

    stack.run("kill", leaders[0], "web-1")
    began = time.monotonic()
    await until(lambda: heard(stack, "changed", killed, "stale"), seconds=40)
    await until(lambda: heard(stack, "left", killed, "expired"), seconds=40)
    assert time.monotonic() - began < 40
    [successor] = set(DAEMONS) - {leaders[0]}
    assert "leading from tick" in stack.log(successor)
    assert len(heard(stack, "left")) == 1
    [left] = stack.adsum("instances")  # type: ignore[misc]
    assert left["id"] != killed

    stack.run("start", leaders[0], "web-1")
    await until(lambda: heard(stack, "joined"), lambda joined: len(joined) == 3, seconds=30)
    stack.run("stop", "web-2")
    await until(lambda: heard(stack, "left", left["id"], "deregistered"), seconds=15)
