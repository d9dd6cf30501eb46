"""Many callers at once, peers that come and go, less room than peers: nothing is left over, nobody hangs."""

from __future__ import annotations

import asyncio
import random

import pytest

from adsum.clients import AdsumError, LeastOutstanding, PickFirst, RoundRobin
from adsum.clients.choosing import Policy
from tests.peers.talking import Crowd, Declined, Refused, ask, crowd
from tests.waiting import until

IDS = ("a", "b", "c", "d", "e")
LINES = ("hello", "hello", "hello", "hang", "break", "declined", "refused")
SECONDS = 2.0


async def trouble(crowd: Crowd, chance: random.Random, over: asyncio.Event) -> None:
    """One after the other is stopped, started, drained, gone, and hard to dial; all are well at the end."""
    while not over.is_set():
        id = chance.choice(IDS)
        talker = crowd.talkers[id]
        match chance.randrange(5):
            case 0:
                await talker.stop()
            case 1:
                crowd.tell(id, mode="draining")
            case 2:
                crowd.leave(id)
            case 3:
                crowd.phone.hold[talker.port] = asyncio.Event()
            case _:
                crowd.tell(id, term=f"{id} {chance.random()}")
        await asyncio.sleep(0.02)
        if id not in crowd.listening:
            await talker.start()
        crowd.tell(id, term=f"{id} {chance.random()}")
        if hold := crowd.phone.hold.pop(talker.port, None):
            hold.set()


async def caller(crowd: Crowd, peers: object, chance: random.Random, over: asyncio.Event) -> int:
    """Calls one after the other, some of which are cancelled; how many were answered."""
    answered = 0
    while not over.is_set():
        call = asyncio.create_task(
            peers.call(ask(chance.choice(LINES)), timeout=chance.uniform(0.05, 0.3), idempotent=chance.random() < 0.5)  # type: ignore[attr-defined]
        )
        if chance.random() < 0.2:
            await asyncio.sleep(chance.uniform(0, 0.02))
            call.cancel()
        try:
            await call
            answered += 1
        except (AdsumError, OSError, TimeoutError, Declined, Refused, asyncio.CancelledError):
            await asyncio.sleep(0)
    return answered


@pytest.mark.parametrize(("policy", "limit"), [(RoundRobin, 2), (LeastOutstanding, 50)])
async def test_a_storm_leaves_nothing_behind(policy: type[Policy], limit: int) -> None:
    """Seeded; the sockets are real."""
    async with crowd(*IDS) as all_of_them:
        for talker in all_of_them.talkers.values():
            talker.answers |= {"declined": "declined", "refused": "refused"}
        over, chance = asyncio.Event(), random.Random(7)
        before = asyncio.all_tasks()
        async with all_of_them.peers(policy=policy(), limit=limit, connect_timeout=1.0, idle=0.1) as peers:
            callers = [asyncio.create_task(caller(all_of_them, peers, chance, over)) for _ in range(30)]
            making = asyncio.create_task(trouble(all_of_them, chance, over))
            most = 0
            async with asyncio.timeout(60):
                for _ in range(int(SECONDS / 0.01)):
                    await asyncio.sleep(0.01)
                    most = max(most, all_of_them.phone.open)
                over.set()
                answered = await asyncio.gather(*callers)
                await making
            assert sum(answered) > 30
            assert most <= limit
            assert await peers.call(ask("hello"), timeout=30)
            await until(lambda: peers.connections, (0).__eq__, 20)
            assert {picked.calls.outstanding for picked in peers.selection.members} == {0}
        assert all_of_them.phone.open == 0
        await until(lambda: [task for task in asyncio.all_tasks() - before if "orders" in task.get_name()], [].__eq__)


async def prepare(kind: str, crowd: Crowd) -> None:
    """Let something be the matter with whom the policy picks first."""
    first = crowd.talkers["a"]
    match kind:
        case "hangs in the dial":
            crowd.phone.hold[first.port] = asyncio.Event()
        case "refuses":
            await first.stop()
        case "is somebody else":
            first.answers["who"] = "default/orders/z"
        case "breaks":
            first.answers["who"] = ""
        case "is on trial":
            selection = crowd.directory.select()
            [picked] = [picked for picked in selection.members if picked.instance.id == "a"]
            for _ in range(5):
                selection.begun(picked).failed()


@pytest.mark.parametrize(
    "kind", ["hangs in the dial", "refuses", "is somebody else", "breaks", "is on trial", "makes room"]
)
async def test_a_call_may_be_cancelled_at_any_step(kind: str) -> None:
    """After each number of turns of the event loop: no record counts it, no connection is held, the next call works."""
    for turns in range(60):
        async with crowd("a", "b") as both:
            for id in both.talkers:
                both.tell(id, metadata={"health.main": "/health"})
            await prepare(kind, both)
            limit = 1 if kind == "makes room" else 50
            async with both.peers(policy=PickFirst(), verify=True, limit=limit) as peers:
                if kind == "makes room":
                    assert await peers.call(ask("hello"), timeout=30) == "a hello"
                    both.tell("a", mode="draining")
                records = [picked.calls for picked in peers.selection.members]
                call = asyncio.create_task(peers.call(ask("hang"), timeout=30, idempotent=True))
                for _ in range(turns):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.wait([call], timeout=30)
                assert call.cancelled()
                assert {record.outstanding for record in records} == {0}
                for hold in both.phone.hold.values():
                    hold.set()
                assert await peers.call(ask("hello"), timeout=30) in ("a hello", "b hello")
            assert both.phone.open == 0
