"""Deploys without a lost call: uvicorn servers under steady load are restarted one by one, and some are killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cluster import cluster, jetstream_answers
from tests.daemons import adsumd
from tests.peers.deployed import SERVICE
from tests.peers.deploying import Deployed, Fleet, fleet_at
from tests.servers import Server
from tests.waiting import until

SERVERS = 10


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """What ends with the test."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def fleet(tmp_path: Path, stack: AsyncExitStack) -> Fleet:
    """Servers and callers at an adsumd."""
    daemon = await stack.enter_async_context(adsumd(tmp_path / "data", "--listen", "127.0.0.1:0"))
    return await fleet_at(daemon.url, tmp_path, stack)


def living(fleet: Fleet) -> list[Deployed]:
    """Those that run, the oldest first."""
    return [server for server in fleet.servers if server.running.process.returncode is None]


async def restart(fleet: Fleet, count: int) -> None:
    """The oldest ones, one by one, each as whom and where it was."""
    for server in living(fleet)[:count]:
        await fleet.close(server)
        await fleet.open(server.id, server.port)


async def replace(fleet: Fleet, count: int) -> None:
    """The oldest ones, one by one, each by another one elsewhere that starts meanwhile."""
    for server in living(fleet)[:count]:
        await asyncio.gather(fleet.close(server), fleet.open())


async def test_ten_servers_are_restarted_and_two_killed(fleet: Fleet) -> None:
    """No call fails because of a restart. Of a kill those that were under way fail, unless they may be done twice."""
    await asyncio.gather(*(fleet.open() for _ in range(SERVERS)))
    await fleet.load(rate=6)
    await restart(fleet, 5)
    await replace(fleet, 5)
    await fleet.more_calls(5)
    in_flight = await fleet.kill(fleet.servers[-1]) | await fleet.kill(fleet.servers[-2])
    await fleet.more_calls(5)
    failed = await fleet.account(fleet.may_be_lost)
    assert {call.id for call in failed} >= {id for id in in_flight if id.endswith("once")}
    gone = [f"default/{SERVICE}/{one.id} at 127.0.0.1:{one.port}" for one in fleet.servers if one.gone]
    told = [f"called was {one}; perhaps it was done" for one in gone]
    assert [call for call in failed if not any(each in call.error for each in told)] == []
    assert [server.id for server in fleet.servers if not server.calls("-")] == []


async def test_wrapped_servers_are_restarted(fleet: Fleet) -> None:
    """Those that know nothing of the registry, and are run by `adsum register`."""
    fleet.wrapped = True
    await asyncio.gather(*(fleet.open() for _ in range(3)))
    await fleet.load(rate=6, count=2)
    await restart(fleet, 2)
    await replace(fleet, 1)
    await fleet.more_calls(5)
    assert await fleet.account() == []
    assert [server.id for server in fleet.servers if not server.calls("-")] == []


@pytest.mark.long
async def test_the_broker_is_away_in_the_middle(tmp_path: Path, stack: AsyncExitStack) -> None:
    """Calls go on from the cache. Of one who is restarted meanwhile nobody can be told that it drains: only a call that
    crosses with its end may be lost, and afterwards it is called again.
    """
    broker = await Server(tmp_path / "broker").start()
    stack.push_async_callback(broker.stop)
    await stack.enter_async_context(adsumd(tmp_path / "data", "--nats", broker.url))
    fleet = await fleet_at(broker.url, tmp_path, stack)
    await asyncio.gather(*(fleet.open() for _ in range(3)))
    await fleet.load(rate=6, count=2)
    await broker.kill()
    await fleet.more_calls(10)
    alone, fleet.shaky = fleet.servers[0], True
    await fleet.close(alone)
    assert alone.gone
    again = await fleet.launch(alone.id, alone.port)
    await fleet.more_calls(10)
    await broker.start()
    await until(lambda: fleet.routable(again), seconds=60)
    await until(lambda: again.calls("-"), seconds=60)
    fleet.shaky = False
    await restart(fleet, 1)
    await replace(fleet, 1)
    await fleet.more_calls(5)
    assert len(await fleet.account(fleet.may_be_lost)) <= len(fleet.callers)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_cluster_loses_its_nodes_while_servers_are_restarted(tmp_path: Path, stack: AsyncExitStack) -> None:
    """Ten servers, twice, under more load; each of three nodes is killed, and is away while some are replaced."""
    nodes = await stack.enter_async_context(cluster(tmp_path))
    url = ",".join(node.url for node in nodes)
    fleet = await fleet_at(url, tmp_path, stack)
    await jetstream_answers(fleet.broker)
    await stack.enter_async_context(adsumd(tmp_path / "data", "--nats", url, "--replicas", "3"))
    await asyncio.gather(*(fleet.open() for _ in range(SERVERS)))
    await fleet.load(rate=15)
    await restart(fleet, SERVERS)
    fleet.shaky = True
    for node in nodes:
        await node.stop(signal.SIGKILL)
        await replace(fleet, 3)
        await node.start()
        await restart(fleet, 2)
    for server in fleet.servers[-2:]:
        await fleet.kill(server)
    await fleet.more_calls(50)
    failed = await fleet.account(fleet.may_be_lost)
    untold = [server for server in fleet.servers[:-2] if server.gone]
    assert len([call for call in failed if call.began < fleet.servers[-2].gone[0]]) <= len(untold) * len(fleet.callers)
