"""What a call says of the peer that it called, and what it does not say: neither a caller's hurry nor the trouble of
somebody else, who is called within it, costs a healthy peer its callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpcore
import pytest

from adsum.clients import Blame, Dialer, Endpoint, NotItself, PickFirst, Unreachable, flight, grpc, http
from adsum.events.cord import NotConnected
from adsum.events.machine import is_of_this_machine
from tests.clients.announcer import instance
from tests.peers.machine import no_socket_left
from tests.peers.talking import Crowd, ask, crowd
from tests.waiting import until


@pytest.fixture
async def three() -> AsyncIterator[Crowd]:
    """Three talkers."""
    async with crowd("a", "b", "c") as made:
        yield made


async def test_callers_in_a_hurry_eject_nobody_who_is_far_away(three: Crowd) -> None:
    """Dials that last longer than the callers wait, and end well, say nothing of the peers, however many wait."""
    holds = {talker.port: asyncio.Event() for talker in three.talkers.values()}
    three.phone.hold = dict(holds)
    async with three.peers() as peers:
        for _ in range(3):
            calls = [peers.call(ask("hello"), timeout=0.1) for _ in range(20)]
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in ended} == {TimeoutError}
        assert [picked.calls.failures for picked in peers.selection.members] == [0, 0, 0]
        for hold in holds.values():
            hold.set()
        await until(lambda: three.phone.open == 3)
        answers = {await peers.call(ask("hello"), timeout=30) for _ in range(3)}
        assert answers == {"a hello", "b hello", "c hello"}
        assert (three.phone.dialed, three.reports) == (3, [])


async def test_a_dial_in_vain_counts_once_when_nobody_waits_for_it_any_more(three: Crowd) -> None:
    """Whoever was in a hurry left long before; or is busy with another peer, and learns of it afterwards."""
    hold = three.phone.hold[three.talkers["a"].port] = asyncio.Event()
    async with three.peers(policy=PickFirst(), connect_timeout=0.5) as peers:
        await three.connect_past("a", peers)
        [a, _, _] = peers.selection.members
        assert await peers.call(ask("hello"), timeout=0.3) == "b hello"
        assert (a.calls.failures, three.reports) == (0, [])
        await until(lambda: a.calls.failures)
        assert await until(lambda: three.reports) == [
            ("a", f"TimeoutError: default/orders/a at {a.endpoint.address} did not answer the dial within 0.5 s")
        ]
        async with peers.using(timeout=0.3) as peer:
            assert peer.instance.id == "b"
            await until(lambda: peers.connections, (1).__eq__)
            assert a.calls.failures == 1
        assert (a.calls.failures, a.calls.outstanding) == (2, 0)
        three.leave("b")
        three.leave("c")
        del three.phone.hold[three.talkers["a"].port]
        assert await peers.call(ask("hello"), timeout=30) == "a hello"
        assert not hold.is_set()


@pytest.mark.parametrize("grouped", [False, True])
async def test_somebody_else_who_is_not_himself_says_nothing_of_who_was_called(three: Crowd, grouped: bool) -> None:
    """What was sent to the peer is not sent again: that it was somebody else is about whom the function called."""
    async with crowd("x") as others:
        others.talkers["x"].answers["who"] = "default/orders/y"
        others.tell("x", metadata={"health.main": "/health"})
        async with three.peers(policy=PickFirst()) as peers, others.peers(verify=True) as others_peers:

            async def pay(peer: object) -> None:
                await peer.connection.say("buy")  # type: ignore[attr-defined]
                if not grouped:
                    await others_peers.call(ask("pay"), timeout=30)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(others_peers.call(ask("pay"), timeout=30))

            with pytest.raises(ExceptionGroup if grouped else NotItself):
                await peers.call(pay, timeout=30)
            assert [talker.heard for talker in three.talkers.values()] == [["buy"], [], []]
            assert (three.reports, peers.selection.members[0].calls.failures) == ([], 0)


async def test_of_a_group_nobody_knows_what_was_done(three: Crowd) -> None:
    """It broke if one of its errors says so, be it that nothing was sent: something else of it perhaps was."""
    errors: list[Exception] = []
    called: list[str] = []

    async def fail(peer: object) -> None:
        called.append(peer.instance.id)  # type: ignore[attr-defined]
        raise ExceptionGroup("some", [ValueError(), ExceptionGroup("of them", errors)])

    async with three.peers(policy=PickFirst()) as peers:
        [a, *_] = peers.selection.members
        for error, failures in ((KeyError(), 0), (ConnectionResetError(), 1), (ConnectionRefusedError(), 2)):
            errors[:] = [error]
            with pytest.raises(ExceptionGroup):
                await peers.call(fail, timeout=30)
            assert a.calls.failures == failures
        assert called == ["a", "a", "a"]
        with pytest.raises(ExceptionGroup):
            await peers.call(fail, timeout=30, idempotent=True)
        assert called[3:] == ["a", "b", "c"]


async def test_who_is_to_be_called_no_more_is_not_called_when_there_is_room(three: Crowd) -> None:
    """It was picked, and drained while the call waited for room."""
    three.leave("c")
    closing = asyncio.Event()
    hang_up = three.phone.close

    async def slowly(connection: object) -> None:
        await closing.wait()
        await hang_up(connection)  # type: ignore[arg-type]

    three.phone.close = slowly  # type: ignore[method-assign]
    async with three.peers(limit=1) as peers:
        assert await peers.call(ask("hello")) == "a hello"
        waiting = asyncio.create_task(peers.call(ask("hello"), timeout=30))  # to b, for whom a makes room
        await until(lambda: peers._pool._evicted)  # type: ignore[union-attr]
        three.tell("b", mode="draining")
        closing.set()
        assert await waiting == "a hello"
        assert three.talkers["b"].heard == []


async def test_peers_are_of_one_event_loop(three: Crowd) -> None:
    async with three.peers() as peers:
        with pytest.raises(RuntimeError, match="peers of default/orders are of another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(peers.call(ask("hello"))))
        assert await peers.call(ask("hello")) == "a hello"


async def test_where_this_machine_has_no_socket_left_nobody_is_to_blame(three: Crowd) -> None:
    """All are tried, and none of them counts as failed or is reported."""
    async with three.peers() as peers:
        for _ in range(5):
            with no_socket_left(), pytest.raises(Unreachable, match="Too many open files") as caught:
                await peers.call(ask("hello"), timeout=30)
            assert len(caught.value.__notes__) == 3
        assert [picked.calls.failures for picked in peers.selection.members] == [0, 0, 0]
        assert {await peers.call(ask("hello"), timeout=30) for _ in range(3)} == {"a hello", "b hello", "c hello"}
        assert three.reports == []


@pytest.mark.parametrize("dialer", [http, grpc, flight])
async def test_what_libraries_make_of_that_is_seen_through(three: Crowd, dialer: Callable[[], Dialer[Any]]) -> None:
    one = instance("orders", "a", 1)
    endpoint = Endpoint(host="127.0.0.1", port=three.talkers["a"].port)
    made = dialer()
    with no_socket_left(), pytest.raises((NotConnected, httpcore.ConnectError)) as caught:
        await made.dial(one, endpoint)
    assert made.blame(caught.value) is Blame.UNREACHABLE
    assert is_of_this_machine(caught.value)


async def test_a_call_that_wants_one_more_connection_blames_nobody_either(three: Crowd) -> None:
    """The one that is there goes on."""

    async def want_another(peer: object) -> None:
        await asyncio.open_connection("127.0.0.1", three.talkers["a"].port)

    three.phone.blame = lambda error: Blame.UNREACHABLE  # type: ignore[method-assign]
    three.leave("b")
    three.leave("c")
    async with three.peers() as peers, peers.using(timeout=30) as held:
        with no_socket_left(), pytest.raises(Unreachable, match="Too many open files"):
            await peers.call(want_another, timeout=30)
        assert await held.connection.say("hello") == "a hello"
        assert ([picked.calls.failures for picked in peers.selection.members], three.reports) == ([0], [])
        assert (peers.connections, three.phone.dialed) == (1, 1)


async def test_who_is_slow_to_hang_up_holds_up_nobody(three: Crowd) -> None:
    """Another one makes room meanwhile: calls do not wait in line for each other's."""
    slow = asyncio.Event()
    hang_up = three.phone.close

    async def slowly(connection: object) -> None:
        if connection is three.phone.talks[0]:
            await slow.wait()
        await hang_up(connection)  # type: ignore[arg-type]

    three.phone.close = slowly  # type: ignore[method-assign]
    async with three.peers(limit=2) as peers:
        assert [await peers.call(ask("hello"), timeout=4.0) for _ in range(6)] == ["a hello", "b hello", "c hello"] * 2
        assert three.phone.open == 2
        assert not slow.is_set()
        slow.set()


async def test_an_error_tells_of_few_however_many_were_tried(three: Crowd) -> None:
    for n in range(40):
        three.tell(f"x{n}")
    for id in three.talkers:
        three.leave(id)
    async with three.peers() as peers:
        with pytest.raises(Unreachable) as caught:
            await peers.call(ask("hello"), timeout=30)
    notes = caught.value.__notes__
    assert sum(note.startswith("tried before: Unreachable: default/orders/x") for note in notes) == 10
    assert "39 were tried before, of whom these were the last:" in notes
    assert any("40 tried already" in note for note in notes)
