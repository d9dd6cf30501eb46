"""Peers over real sockets: who is called, what is tried again, what becomes of connections."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from adsum.clients import NoneRegistered, NoneRoutable, NotItself, NotLoaded, PickFirst, Unreachable
from adsum.events.errors import InvalidValue
from tests.peers.talking import Crowd, Declined, Refused, ask, crowd
from tests.waiting import until


@pytest.fixture
async def three() -> AsyncIterator[Crowd]:
    """Three talkers."""
    async with crowd("a", "b", "c") as made:
        yield made


async def test_calls_go_round_over_one_connection_each(three: Crowd) -> None:
    async with three.peers() as peers:
        answers = Counter([await peers.call(ask("hello")) for _ in range(9)])
        assert answers == {"a hello": 3, "b hello": 3, "c hello": 3}
        assert (three.phone.dialed, three.phone.open, peers.connections) == (3, 3, 3)
    assert three.phone.open == 0
    with pytest.raises(RuntimeError, match="enter the peers"):
        await peers.call(ask("hello"))


async def test_a_hundred_callers_make_one_dial(three: Crowd) -> None:
    """Half of them are cancelled while it goes on; the others have their answers."""
    hold = three.phone.hold[three.talkers["a"].port] = asyncio.Event()
    async with three.peers(policy=PickFirst()) as peers:
        calls = [asyncio.create_task(peers.call(ask("hello"), timeout=30)) for _ in range(100)]
        await until(lambda: three.phone.dialed)
        for call in calls[::2]:
            call.cancel()
        await asyncio.wait(calls[::2])
        hold.set()
        assert await asyncio.gather(*calls[1::2]) == ["a hello"] * 50
        assert three.phone.dialed == 1


async def test_who_refuses_is_passed_over_and_reported(three: Crowd) -> None:
    await three.talkers["a"].stop()
    async with three.peers(policy=PickFirst()) as peers:
        assert await peers.call(ask("hello")) == "b hello"
        [(id, reason)] = await until(lambda: three.reports)
        assert id == "a"
        assert "cannot be reached: " in reason
        for talker in three.talkers.values():
            await talker.stop()
        await until(lambda: three.phone.open == 0 or not three.talkers["b"].connections)
        with pytest.raises(Unreachable, match=r"default/orders/c at 127\.0\.0\.1") as caught:
            await peers.call(ask("hello"))
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        notes = "\n".join(caught.value.__notes__)
        assert notes.count("tried before: Unreachable: default/orders/") == 2
        assert "3 tried already" in notes


async def test_a_kept_connection_that_is_gone_says_nothing_of_the_peer(three: Crowd) -> None:
    """Seen before the call or by it: the same peer is dialed anew, and nobody is told."""
    async with three.peers(policy=PickFirst()) as peers:
        for blind in (False, True):
            three.phone.blind = blind
            assert await peers.call(ask("hello")) == "a hello"
            await three.talkers["a"].stop()
            await three.talkers["a"].start()
            await until(lambda: three.phone.talks[-1].gone)
            assert await peers.call(ask("hello"), timeout=30) == "a hello"
            assert sum(talk.missed for talk in three.phone.talks) == blind
        assert (three.phone.dialed, three.reports, three.talkers["a"].taken) == (3, [], 3)
        await until(lambda: three.phone.open == 1)
        await three.talkers["a"].stop()
        await until(lambda: three.phone.talks[-1].gone)
        assert await peers.call(ask("hello")) == "b hello"
        assert [id for id, _ in await until(lambda: three.reports)] == ["a"]


async def test_a_call_that_broke_is_tried_again_only_where_that_is_allowed(three: Crowd) -> None:
    async with three.peers(policy=PickFirst()) as peers:
        three.talkers["b"].answers["break"] = "b was asked again"
        with pytest.raises(ConnectionResetError) as caught:
            await peers.call(ask("break"))
        port = three.talkers["a"].port
        assert caught.value.__notes__ == [f"called was default/orders/a at 127.0.0.1:{port}; perhaps it was done"]
        assert three.talkers["b"].heard == []
        assert peers.connections == 0 or await until(lambda: peers.connections == 0)
        three.talkers["b"].heard.clear()
        with pytest.raises(ConnectionResetError) as caught:
            await peers.call(ask("break"), idempotent=True)
        assert [len(talker.heard) for talker in three.talkers.values()] == [2, 1, 1]
        assert len(caught.value.__notes__) == 3


async def test_who_declines_is_passed_over_and_an_answer_is_an_answer(three: Crowd) -> None:
    three.talkers["a"].answers |= {"buy": "declined", "sell": "refused"}
    async with three.peers(policy=PickFirst()) as peers:
        assert await peers.call(ask("buy")) == "b buy"
        with pytest.raises(Refused):
            await peers.call(ask("sell"), idempotent=True)
        assert three.reports == []
        for talker in three.talkers.values():
            talker.answers["buy"] = "declined"
        with pytest.raises(Declined):
            await peers.call(ask("buy"))
    async with three.peers(policy=PickFirst(), attempts=1) as peers:
        with pytest.raises(Declined) as caught:
            await peers.call(ask("buy"))
        assert not hasattr(caught.value, "__notes__")


async def test_errors_of_nobody(three: Crowd) -> None:
    empty = Crowd()
    async with empty.peers() as peers:
        with pytest.raises(NotLoaded):
            await peers.call(ask("hello"))
        empty.load()
        with pytest.raises(NoneRegistered):
            await peers.call(ask("hello"))
        empty.tell("a", mode="draining")
        with pytest.raises(NoneRoutable, match="1 draining"):
            await peers.call(ask("hello"))
        with pytest.raises(InvalidValue, match="timeout"):
            await peers.call(ask("hello"), timeout=0)


async def test_a_dial_that_lasts_does_not_take_all_the_time(three: Crowd) -> None:
    """Somebody else is tried meanwhile, and later calls do not wait for it at all; once it is overdue, it counts as
    failed for each of them."""
    hold = three.phone.hold[three.talkers["a"].port] = asyncio.Event()
    async with three.peers(policy=PickFirst()) as peers:
        await three.connect_past("a", peers)
        [a, _, _] = peers.selection.members
        async with asyncio.timeout(30):
            while a in peers.selection.members:
                assert await peers.call(ask("hello"), timeout=2.0) == "b hello"
        assert a.calls.failures == 5
        assert [picked.instance.id for picked in peers.selection.members] == ["b", "c"]
        assert three.phone.dialed == 2
        assert {id for id, _ in three.reports} == {"a"}
        hold.set()
        await until(lambda: three.phone.open == 2)
    assert three.phone.open == 0


async def test_whose_dial_ends_first_is_called_when_all_of_them_last(three: Crowd) -> None:
    holds = {id: asyncio.Event() for id in three.talkers}
    three.phone.hold = {three.talkers[id].port: hold for id, hold in holds.items()}
    async with three.peers(policy=PickFirst()) as peers:
        call = asyncio.create_task(peers.call(ask("hello"), timeout=6.0))
        await until(lambda: three.phone.dialed == 3, seconds=20)
        holds["a"].set()
        assert await call == "a hello"
        three.tell("a", mode="draining")
        with pytest.raises(TimeoutError, match=r"nobody of default/orders was reached within 0\.5 s.*/orders/b at 127"):
            await peers.call(ask("hello"), timeout=0.5)


async def test_a_dial_ends_by_itself(three: Crowd) -> None:
    """After its own time, not its caller's: then the next call dials anew."""
    [port] = [talker.port for id, talker in three.talkers.items() if id == "a"]
    three.phone.hold[port] = asyncio.Event()
    three.leave("b")
    three.leave("c")
    async with three.peers(connect_timeout=1.0) as peers:
        with pytest.raises(TimeoutError, match=r"default/orders/a at .* did not answer the dial within 1 s"):
            await peers.call(ask("hello"), timeout=20.0)
        del three.phone.hold[port]
        assert await peers.call(ask("hello"), timeout=20.0) == "a hello"


async def test_the_caller_waits_longer_than_the_callee_is_told(three: Crowd) -> None:
    async with three.peers(policy=PickFirst(), timeout=0.2, grace=30.0) as peers:
        await peers.call(ask("hello"), timeout=30)  # so that no dial takes of the time
        told: list[float] = []

        async def own_error(peer: object) -> str:
            told.append(peer.timeout)  # type: ignore[attr-defined]
            await asyncio.sleep(0.4)  # the callee's own time, above what it was told
            raise Refused("too late")

        with pytest.raises(Refused):
            await peers.call(own_error)
        assert 0 < told[0] < 0.21
    async with three.peers(policy=PickFirst(), timeout=0.2) as peers:
        await peers.call(ask("hello"), timeout=30)
        with pytest.raises(TimeoutError, match=r"default/orders/a at .* did not answer within 0\.2 s"):
            await peers.call(ask("hang"), idempotent=True)
        assert await until(lambda: [id for id, _ in three.reports]) == ["a"]


async def test_one_slow_call_does_not_cost_the_others_their_connection(three: Crowd) -> None:
    """It is proven by the answers to others; without any, it is thrown away."""
    async with three.peers(policy=PickFirst()) as peers:

        async def outlast(peer: object) -> None:
            await asyncio.sleep(60)  # longer than the caller waits

        await peers.call(ask("hello"), timeout=30)
        slow = asyncio.create_task(peers.call(outlast, timeout=0.3))
        await asyncio.sleep(0)  # so that it has begun
        assert await peers.call(ask("hello")) == "a hello"
        with pytest.raises(TimeoutError):
            await slow
        assert (three.phone.dialed, three.phone.open, three.reports) == (1, 1, [])
        with pytest.raises(TimeoutError):
            await peers.call(outlast, timeout=0.3)
        await until(lambda: three.phone.open == 0)


async def test_who_leaves_loses_its_connection_when_its_calls_have_ended(three: Crowd) -> None:
    """Draining costs nothing but new calls; a new life is another one."""
    async with three.peers(policy=PickFirst(), timeout=30.0) as peers:
        async with peers.using() as peer:
            assert await peer.connection.say("hello") == "a hello"
            three.tell("a", mode="draining")
            assert await peers.call(ask("hello")) == "b hello"
            three.leave("a")
            await until(lambda: peers.connections == 2)
            assert await peer.connection.say("still there") == "a still there"
        await until(lambda: three.phone.open == 1)
        three.tell("b", term="another life")
        await until(lambda: three.phone.open == 0)
        assert await peers.call(ask("hello")) == "b hello"
        assert three.phone.dialed == 3


async def test_the_patience_with_calls_to_who_left_has_an_end(three: Crowd) -> None:
    async with three.peers(policy=PickFirst(), timeout=0.3) as peers, peers.using(timeout=5) as peer:
        three.leave("a")
        with pytest.raises(ConnectionError):
            await peer.connection.say("hang")


async def test_leaving_the_block_ends_what_is_under_way(three: Crowd) -> None:
    """Calls, dials and those who wait for them; they end with an error of their own."""
    three.phone.hold[three.talkers["b"].port] = asyncio.Event()
    three.phone.hold[three.talkers["c"].port] = asyncio.Event()
    async with three.peers() as peers:
        called = asyncio.create_task(peers.call(ask("hang"), idempotent=True))
        await until(lambda: three.talkers["a"].heard)
        three.leave("a")
        waiting = asyncio.create_task(peers.call(ask("hello")))
        await until(lambda: three.phone.dialed == 3)
    ended = await asyncio.gather(called, waiting, return_exceptions=True)
    assert [type(error) for error in ended] == [RuntimeError, RuntimeError]
    assert three.phone.open == 0


async def test_an_error_of_the_block_comes_out_as_it_is(three: Crowd) -> None:
    async def fail() -> None:
        async with three.peers() as peers:
            await peers.call(ask("hello"))
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await fail()
    assert three.phone.open == 0


async def test_a_call_that_broke_takes_no_other_with_it(three: Crowd) -> None:
    """What is under way over the same connection goes on, for as long as it takes."""

    async def break_off(peer: object) -> None:
        raise ConnectionResetError("only this one")

    async with three.peers(policy=PickFirst(), timeout=0.2) as peers, peers.using(timeout=30) as peer:
        with pytest.raises(ConnectionResetError):
            await peers.call(break_off, timeout=30)
        assert await peers.call(ask("hello"), timeout=30) == "a hello"
        await asyncio.sleep(0.5)  # longer than calls to one who left may take
        assert await peer.connection.say("hello") == "a hello"
        assert three.phone.open == 2


async def test_idle_connections_are_closed(three: Crowd) -> None:
    async with three.peers(idle=0.2) as peers:
        for _ in range(3):
            await peers.call(ask("hello"))
        async with peers.using() as peer:
            await until(lambda: peers.connections == 1)
            assert await peer.connection.say("hello") == "a hello"
        await until(lambda: three.phone.open == 0)


async def test_there_are_never_more_connections_than_allowed(three: Crowd) -> None:
    """Who was idle longest makes room; when all are in use, a call waits, and not for ever."""
    async with three.peers(limit=2) as peers:
        assert [await peers.call(ask("hello")) for _ in range(6)] == ["a hello", "b hello", "c hello"] * 2
        assert three.phone.dialed == 6
        assert three.phone.open <= 2
        async with peers.using() as first, peers.using() as second:
            assert (first.instance.id, second.instance.id) == ("a", "b")
            with pytest.raises(TimeoutError, match="all connections are in use"):
                await peers.call(ask("hello"), timeout=0.3)
            assert [await peers.call(ask("hello")) for _ in range(2)] == ["a hello", "b hello"]
            waiting = asyncio.create_task(peers.call(ask("hello"), timeout=30))
        assert await waiting == "c hello"
        assert three.phone.open <= 2


async def test_a_dial_that_lasts_makes_room_for_another(three: Crowd) -> None:
    """It is given up when nothing else can be; so it is when its instance leaves."""
    hold = three.phone.hold[three.talkers["a"].port] = asyncio.Event()
    async with three.peers(policy=PickFirst(), limit=1, connect_timeout=600.0) as peers:
        assert await peers.call(ask("hello"), timeout=4.0) == "b hello"
        three.leave("b")
        await until(lambda: three.phone.open == 0)
        waiting = asyncio.create_task(peers.call(ask("hello"), timeout=60.0))
        await until(lambda: three.phone.dialed == 3)
        three.leave("a")
        assert await waiting == "c hello"
    assert not hold.is_set()
    assert three.phone.open == 0


async def test_who_answers_as_another_is_not_called(three: Crowd) -> None:
    """Neither is who does not say; without a health endpoint, a connection has to do."""
    health = {"health.main": "/health"}
    for id in three.talkers:
        three.tell(id, metadata=health)
    three.talkers["a"].answers["who"] = "default/search/x"
    three.talkers["b"].answers["who"] = "\t"
    async with three.peers(policy=PickFirst(), verify=True, attempts=1) as peers:
        three.talkers["b"].answers["who"] = "nobody"
        assert await peers.call(ask("hello")) == "c hello"
        assert [talker.heard for talker in three.talkers.values()] == [["who"], ["who"], ["who", "hello"]]
        assert [(id, reason.partition(":")[0]) for id, reason in three.reports] == [
            ("a", "NotItself"),
            ("b", "NotItself"),
        ]
        three.talkers["c"].answers["who"] = "default/search/x"
        three.tell("c", metadata=health, term="another life")
        with pytest.raises(NotItself, match="'default/search/x' answers there"):
            await peers.call(ask("hello"))
        three.tell("c", term="one more")
        assert await peers.call(ask("hello")) == "c hello"
    assert three.phone.open == 0


async def test_callers_who_are_cancelled_leave_nothing_behind(three: Crowd) -> None:
    before = asyncio.all_tasks()
    async with three.peers(timeout=30) as peers:
        loops = asyncio.all_tasks() - before
        for wait in (0.0, 0.001, 0.01, 0.05):
            calls = [asyncio.create_task(peers.call(ask("hang"))) for _ in range(20)]
            await asyncio.sleep(wait)  # so that they are cancelled while picking, dialing and waiting
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
            assert all(call.cancelled() for call in calls)
        await until(lambda: [task for task in asyncio.all_tasks() - loops if "dialing" in task.get_name()], [].__eq__)
        assert {picked.calls.outstanding for picked in peers.selection.members} == {0}
        assert {picked.calls.failures for picked in peers.selection.members} == {0}
    assert three.phone.open == 0
    await until(lambda: sum(talker.connections for talker in three.talkers.values()) == 0)
    assert {task for task in asyncio.all_tasks() if "orders" in task.get_name()} == set()
