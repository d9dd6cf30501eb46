"""What is written to a socket that is full, slow, or gone: all of it, in order, or nothing; never late. Both loops."""

from __future__ import annotations

import asyncio
import re
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adsum.events import subjects
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.errors import BrokerUnavailable
from adsum.events.publishing import MOST_WAITING
from adsum.events.streams import EVENTS, ensure_streams
from adsum.events.wire import Heard
from tests.integration.test_broker_access import Authority, tls
from tests.integration.test_closing import LOOPS, run
from tests.proxy import proxy_to
from tests.servers import Server
from tests.unit.test_fold import KEY
from tests.waiting import until

pytestmark = pytest.mark.parametrize("loop", LOOPS)
KEPT = pytest.mark.parametrize("keep_unsent", [True, False])
MB = 1 << 20
LARGE = "max_payload: 16MB\nmax_pending: 256MB\n"


@asynccontextmanager
async def serving(folder: Path, config: str = "") -> AsyncIterator[Server]:
    """A nats-server."""
    server = await Server(folder, config).start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(
    url: str, ping: float = 2.0, keep_unsent: bool = True, tls_ca: str | None = None
) -> AsyncIterator[Broker]:
    """A connection that stands."""
    settings = BrokerSettings(url=url, tls_ca=tls_ca)
    broker = Broker.open(settings, "test", ping=ping, keep_unsent=keep_unsent)
    try:
        await broker.ready(10)
        yield broker
    finally:
        await broker.close()


async def publishing(broker: Broker, size: int) -> None:
    """Publish until it cannot be."""
    while True:
        await broker.publish("greeting", b"x" * size)
        await asyncio.sleep(0)


# ---- a full socket


@KEPT
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_server_that_stands_still_is_noticed_however_much_waits(
    tmp_path: Path, loop: str, keep_unsent: bool, size: int
) -> None:
    """Nothing keeps the pings from being counted: neither many messages that wait, nor large ones."""

    async def test() -> None:
        async with serving(tmp_path) as server, connected(server.url, 0.3, keep_unsent) as broker:
            server.pause()
            publishers = [asyncio.ensure_future(publishing(broker, size)) for _ in range(3)]
            await until(lambda: broker.outage.lasted)
            server.go_on()
            await until(lambda: broker.connects == 2)
            await broker.close()
            await asyncio.wait(publishers, timeout=5)
            assert [isinstance(one.exception(), BrokerUnavailable) for one in publishers] == [True] * 3

    run(loop, test)


def test_who_waits_for_a_full_socket_is_let_go_when_it_closes(tmp_path: Path, loop: str) -> None:
    """And whoever is cancelled meanwhile goes at once."""

    async def test() -> None:
        async with serving(tmp_path) as server, connected(server.url) as broker:
            server.pause()
            publishers = [asyncio.ensure_future(publishing(broker, 100_000)) for _ in range(20)]
            await until(lambda: broker._client.pending_data_size >= MB)
            done, _ = await asyncio.wait(publishers, timeout=0.2)
            assert not done
            publishers[0].cancel()
            await asyncio.wait(publishers[:1], timeout=5)
            assert publishers[0].cancelled()
            await broker.close()
            await asyncio.wait(publishers, timeout=5)
            assert all(isinstance(one.exception(), BrokerUnavailable) for one in publishers[1:])

    run(loop, test)


@KEPT
def test_whoever_publishes_faster_than_the_socket_takes_waits_for_it(
    tmp_path: Path, loop: str, keep_unsent: bool
) -> None:
    """100 MB in a row, from several at once: never all of it in memory, and all arrives, in each one's order."""

    async def publish(broker: Broker, whose: int) -> None:
        for number in range(250):
            await broker.publish(f"greeting.{whose}", b"%06d" % number + b"x" * 100_000)

    async def test() -> None:
        async with serving(tmp_path) as server, connected(server.url, 10) as hearer:
            heard: dict[str, list[int]] = {}
            await hearer.listen("greeting.*", lambda msg: heard.setdefault(msg.subject, []).append(int(msg.data[:6])))
            async with connected(server.url, 10, keep_unsent) as broker:
                tracemalloc.start()
                await asyncio.gather(*(publish(broker, whose) for whose in range(4)))
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                await until(lambda: sum(map(len, heard.values())) == 1000, seconds=30)
                assert heard == {f"greeting.{whose}": list(range(250)) for whose in range(4)}
                assert peak < 20 * MB
                assert broker.connects == hearer.connects == 1

    run(loop, test)


def test_another_server_is_found_where_one_stands_still(tmp_path: Path, loop: str) -> None:
    """What waits to be written to the one that is lost does not hold up the way to the other."""

    async def test() -> None:
        async with (
            serving(tmp_path / "one") as one,
            serving(tmp_path / "two") as two,
            connected(f"{one.url},{two.url}", 0.3) as broker,
        ):
            first, other = (one, two) if broker.url == one.url else (two, one)
            first.pause()
            publisher = asyncio.ensure_future(publishing(broker, 100_000))
            await until(lambda: broker.url == other.url and broker.connects == 2, seconds=30)
            publisher.cancel()

    run(loop, test)


# ---- a socket that goes


@KEPT
def test_what_was_said_as_the_connection_went(tmp_path: Path, loop: str, keep_unsent: bool) -> None:
    """It is sent over the next one where what is unsent is kept, whole and in order, and else never."""

    async def test() -> None:
        async with serving(tmp_path) as server, connected(server.url) as hearer:
            heard: list[bytes] = []
            await hearer.listen("greeting", lambda msg: heard.append(msg.data))
            async with connected(server.url, keep_unsent=keep_unsent) as broker:
                await broker.publish("greeting", b"before")
                broker._client._abort()
                await broker.publish("greeting", b"after")
                await until(lambda: broker.connects == 2)
                await broker.publish("greeting", b"again")
                await until(lambda: b"again" in heard)
                assert heard == ([b"before", b"after", b"again"] if keep_unsent else [b"again"])

    run(loop, test)


@pytest.mark.long  # the driver waits ten seconds
def test_a_reconnect_that_broke_off_leaves_nothing_behind(tmp_path: Path, loop: str) -> None:
    """Where nothing answers after the handshake, the next try has the only pings and the only reader."""

    async def test() -> None:
        async with serving(tmp_path) as server, proxy_to(server.url) as proxy, connected(proxy.url, 20) as broker:
            heard: list[bytes] = []
            await broker.listen("greeting", lambda msg: heard.append(msg.data))
            proxy.hold_at(b"SUB ")
            proxy.drop()
            await until(lambda: "flush" in broker.last_error, seconds=20)
            proxy.heal()
            await until(lambda: broker.connects == 2, seconds=20)
            await broker.publish("greeting", b"once")
            await broker.flush()
            await until(lambda: heard == [b"once"])
            names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
            for name in ("Driver._read_loop", "Client._flusher", "Client._ping_interval"):
                assert names.count(name) == 1, names

    run(loop, test)


# ---- one message


def test_what_the_server_would_not_take_ends_no_connection(tmp_path: Path, loop: str) -> None:
    """The headers count too; and no subject or reply says anything else than where to."""

    async def test() -> None:
        async with serving(tmp_path) as server, connected(server.url) as broker:
            heard: list[Heard] = []
            await broker.listen(">", heard.append)
            headers = {"A": "b" * 1000}
            block = len("NATS/1.0\r\nA: \r\n\r\n") + 1000
            await broker.publish("greeting", b"x" * (broker.max_payload - block), headers=headers)
            for more in (1, block):
                with pytest.raises(BrokerUnavailable, match="payload"):
                    await broker.publish("greeting", b"x" * (broker.max_payload - block + more), headers=headers)
            for odd in ("", "a b", "a\r\nPUB b 0\r\n"):
                with pytest.raises(BrokerUnavailable, match="subject"):
                    await broker.publish(odd, b"")
                if odd:
                    with pytest.raises(BrokerUnavailable, match="subject"):
                        await broker.publish("greeting", b"", odd)
            await broker.publish("last", b"")
            await until(lambda: heard and heard[-1].subject == "last")
            assert [len(msg.data) for msg in heard] == [broker.max_payload - block, 0]
            assert broker.connects == 1

    run(loop, test)


def test_a_message_of_many_reads_is_whole(tmp_path: Path, loop: str) -> None:
    """Whoever hears it, with another behind each, over a connection that cuts as it likes."""

    async def test() -> None:
        async with (
            serving(tmp_path, LARGE) as server,
            proxy_to(server.url) as proxy,
            connected(proxy.url) as hearer,
            connected(server.url) as broker,
        ):
            heard: list[bytes] = []
            queued: list[bytes] = []

            async def queue(msg: object) -> None:
                queued.append(msg.data)  # type: ignore[attr-defined]

            await hearer.listen("greeting", lambda msg: heard.append(msg.data))
            await hearer.subscribe("greeting", queue)
            said = [bytes([number]) * (15 * MB if number % 2 else number) for number in range(6)]
            for one in said:
                await broker.publish("greeting", one, headers={"A": "b"})
            await until(lambda: len(heard) == len(queued) == len(said), seconds=30)
            assert heard == queued == said
            assert hearer.connects == broker.connects == 1

    run(loop, test)


def test_over_tls_all_is_the_same(tmp_path: Path, loop: str, caplog: pytest.LogCaptureFixture) -> None:
    """Large messages are whole, what was said as the connection went is kept, and a dead server is noticed."""

    async def test() -> None:
        authority = Authority(tmp_path / "tls")
        trusted = str(authority.certificate)
        async with (
            serving(tmp_path, LARGE + tls(authority)) as server,
            connected(server.url, 10, tls_ca=trusted) as hearer,
        ):
            heard: list[bytes] = []
            await hearer.listen("greeting", lambda msg: heard.append(msg.data))
            async with connected(server.url, 0.3, tls_ca=trusted) as broker:
                await broker.publish("greeting", b"x" * 15 * MB)
                await until(lambda: heard == [b"x" * 15 * MB], seconds=30)
                await broker.publish("greeting", b"before")
                broker._client._abort()
                await broker.publish("greeting", b"after")
                await until(lambda: heard[1:] == [b"before", b"after"])
                await until(lambda: broker.connected)
                server.pause()
                publisher = asyncio.ensure_future(publishing(broker, 100_000))
                await until(lambda: broker.outage.lasted)
                server.go_on()
            await asyncio.wait([publisher], timeout=5)
            assert re.search("closed|limit", str(publisher.exception()))
        assert "eof_received" not in caplog.text

    run(loop, test)


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_who_hears_may_end_it_while_more_is_read(tmp_path: Path, loop: str, end: str) -> None:
    """Nothing raises, and nothing is heard once it has ended."""

    async def test() -> None:
        async with serving(tmp_path) as server, connected(server.url) as hearer, connected(server.url) as broker:
            heard: list[bytes] = []
            ending: list[asyncio.Future[None]] = []

            def hear(msg: Heard) -> None:
                heard.append(msg.data)
                if len(heard) == 10:
                    doing = hearer.close() if end == "close" else hearer.unsubscribe(subscription)
                    ending.append(asyncio.ensure_future(doing))

            subscription = await hearer.listen("greeting", hear)
            for number in range(2000):
                await broker.publish("greeting", b"%d" % number)
            await until(lambda: ending)
            await ending[0]
            count = len(heard)
            await broker.publish("greeting", b"late")
            await broker.flush()
            if hearer.connected:
                await hearer.flush()  # what the server had for it has come
            assert heard == [b"%d" % number for number in range(count)]
            assert hearer.connected == (end == "unsubscribe")

    run(loop, test)


def test_whoever_gives_up_waiting_for_an_acknowledgement_keeps_no_place(tmp_path: Path, loop: str) -> None:
    """As many as may be on their way, to a subject that somebody takes who acknowledges nothing."""

    async def test() -> None:
        async with serving(tmp_path) as server, connected(server.url) as broker:
            await ensure_streams(broker)
            heard: list[Heard] = []
            await broker.listen("greeting", heard.append)
            waiting = [
                asyncio.ensure_future(broker.store(EVENTS, "greeting", b"", {}, 60)) for _ in range(MOST_WAITING)
            ]
            await until(lambda: len(heard) == MOST_WAITING, seconds=30)
            for one in waiting:
                one.cancel()
            await asyncio.wait(waiting)
            assert await broker.store(EVENTS, subjects.event(KEY), b"{}", {}) == 1

    run(loop, test)
