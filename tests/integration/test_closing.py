"""The end of a connection: whatever the loop and the state of the server, soon, without an error, with nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from adsum.events.broker import Broker, BrokerSettings
from adsum.events.errors import BrokerUnavailable
from tests.proxy import proxy_to
from tests.servers import Server
from tests.waiting import until

MOST = 5.0
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
NOWHERE = "nats://127.0.0.1:9"


async def _fill(broker: Broker) -> None:
    """Publish more than the sockets take."""
    for _ in range(200):
        await asyncio.wait_for(broker.publish("greeting", b"x" * 100_000), 2)


async def running(server: Server, broker: Broker) -> None:
    """Nothing is wrong."""


async def paused(server: Server, broker: Broker) -> None:
    server.pause()


async def paused_with_something_unsent(server: Server, broker: Broker) -> None:
    server.pause()
    with contextlib.suppress(Exception):  # whatever it is: the buffers are full now
        await _fill(broker)


async def paused_and_noticed(server: Server, broker: Broker) -> None:
    server.pause()
    await until(lambda: not broker.connected)


async def killed(server: Server, broker: Broker) -> None:
    await server.kill()


async def killed_with_something_unsent(server: Server, broker: Broker) -> None:
    await server.kill()
    await broker.publish("greeting", b"hello")


async def killed_and_noticed(server: Server, broker: Broker) -> None:
    await server.kill()
    await until(lambda: not broker.connected)
    await broker.publish("greeting", b"hello")


async def killed_and_tried_again(server: Server, broker: Broker) -> None:
    await server.kill()
    await until(lambda: "onnect" in broker.last_error)


async def back_again(server: Server, broker: Broker) -> None:
    await server.kill()
    await server.start()
    await until(lambda: broker.connects == 2)


async def back_but_paused(server: Server, broker: Broker) -> None:
    """The handshake of the reconnect waits for a server that stands still."""
    await server.kill()
    await server.start()
    server.pause()
    await until(lambda: not broker.connected)
    await asyncio.sleep(1)  # longer than the wait between two tries: one is under way


STATES = [
    running,
    paused,
    paused_with_something_unsent,
    paused_and_noticed,
    killed,
    killed_with_something_unsent,
    killed_and_noticed,
    killed_and_tried_again,
    back_again,
    back_but_paused,
]


async def hear(msg: Msg) -> None:
    assert msg


def run(loop: str, test: Callable[[], Awaitable[None]]) -> None:
    """Run it on this kind of loop; fails if that was told of an error, or if tasks are left."""
    told: list[object] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        await test()
        await until(lambda: len(asyncio.all_tasks()) == 1, seconds=2)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(whole())
    assert not told


async def closed(broker: Broker) -> None:
    """Close it twice, and then once more at a time."""
    began = time.monotonic()
    await broker.close()
    await broker.close()
    await asyncio.gather(broker.close(), broker.close())
    assert time.monotonic() - began < MOST
    assert not broker.connected


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("state", STATES)
def test_closing_a_connection_that_stood(
    tmp_path: Path, loop: str, state: Callable[[Server, Broker], Awaitable[None]]
) -> None:
    async def test() -> None:
        server = await Server(tmp_path / "server").start()
        broker = Broker.open(BrokerSettings(url=server.url), "test", ping=0.5)
        await broker.ready(10)
        await broker.subscribe("greeting", hear)
        await state(server, broker)
        await closed(broker)
        await server.stop()

    run(loop, test)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("waited", [0, 0.01, 0.5, 1])
@pytest.mark.parametrize("there", ["never", "paused", "running"])
def test_closing_a_connection_that_never_stood(tmp_path: Path, loop: str, waited: float, there: str) -> None:
    async def test() -> None:
        server = await Server(tmp_path / "server").start()
        if there == "paused":
            server.pause()
        broker = Broker.open(BrokerSettings(url=NOWHERE if there == "never" else server.url), "test")
        await asyncio.sleep(waited)  # the moment of closing is what the test varies
        await closed(broker)
        await server.stop()

    run(loop, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_what_was_closed_in_a_handshake_stays_closed(tmp_path: Path, loop: str) -> None:
    """Dropping the socket ends the handshake as its task is cancelled, and the one hides the other."""

    async def test() -> None:
        server = await Server(tmp_path / "server").start()
        try:
            async with proxy_to(server.url) as proxy:
                broker = Broker.open(BrokerSettings(url=proxy.url), "test")
                await broker.ready(10)
                proxy.blackhole("down")
                proxy.drop()
                await until(lambda: not broker.connected)
                await until(lambda: proxy.connections)
                await broker.close()
                proxy.heal()
                await asyncio.sleep(1)  # longer than the wait between two tries to connect
                await until(lambda: proxy.connections, lambda count: count == 0, seconds=2)
                assert broker.connects == 1
        finally:
            await server.stop()

    run(loop, test)


CALLS: list[Callable[[Broker, Subscription], Awaitable[object]]] = [
    lambda broker, _: broker.publish("greeting", b"x" * 900_000),
    lambda broker, _: broker.store("GREETINGS", "greeting", b"hello", {}, 0.5),
    lambda broker, _: broker.flush(),
    lambda broker, _: broker.stream_info("GREETINGS"),
    lambda broker, subscription: broker.unsubscribe(subscription),
    lambda broker, _: broker.delete_consumer("GREETINGS", "one"),
]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_call_on_a_socket_that_has_just_gone_is_told_as_that(tmp_path: Path, loop: str) -> None:
    """uvloop raises a RuntimeError there."""

    async def test() -> None:
        server = await Server(tmp_path / "server").start()
        for call in CALLS:
            broker = Broker.open(BrokerSettings(url=server.url), "test")
            await broker.ready(10)
            subscription = await broker.subscribe("greeting", hear)
            broker._client._flusher_task.cancel()
            broker._client._transport._io_writer.transport.abort()
            with contextlib.suppress(BrokerUnavailable):
                await call(broker, subscription)
            await closed(broker)
        await server.stop()

    run(loop, test)


@pytest.mark.parametrize("loop", LOOPS)
def test_several_at_once_on_one_server_that_stands_still(tmp_path: Path, loop: str) -> None:
    async def test() -> None:
        server = await Server(tmp_path / "server").start()
        brokers = [Broker.open(BrokerSettings(url=server.url), "test") for _ in range(5)]
        await asyncio.gather(*(broker.ready(10) for broker in brokers))
        server.pause()
        await asyncio.gather(*(closed(broker) for broker in brokers))
        await server.stop()

    run(loop, test)
