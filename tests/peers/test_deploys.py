"""Deploys without a lost call: uvicorn servers under steady load are restarted one by one, and some are killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.events.broker import Broker, BrokerSettings
from tests.daemons import adsumd
from tests.peers.deploying import Fleet, Server

SERVERS = 10


async def fleet_at(url: str, folder: Path, stack: AsyncExitStack, *, wrapped: bool = False) -> Fleet:
    """Servers and callers at a broker."""
    broker = Broker.open(BrokerSettings(url=url), "test")
    stack.push_async_callback(broker.close)
    await broker.ready(10)
    return Fleet(url, folder, broker, stack, wrapped)


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


def living(fleet: Fleet) -> list[Server]:
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
    assert [server.id for server in fleet.servers if not server.calls("-")] == []
