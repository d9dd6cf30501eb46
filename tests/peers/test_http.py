"""Calls over HTTP: a real adsumd, uvicorn servers that are killed, replaced and drained, and httpx."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from adsum.clients import (
    Endpoint,
    InvalidValue,
    NoneRegistered,
    NotItself,
    NotLoaded,
    Outliers,
    Peer,
    Peers,
    PickFirst,
    Registry,
    Unreachable,
    http,
)
from tests.clients.announcer import instance
from tests.peers.callee import callee
from tests.peers.certificates import certificate
from tests.peers.web import Web, web
from tests.proxy import proxy_to
from tests.waiting import until

HEALTH = {"health.main": "/health"}


@pytest.fixture
async def two() -> AsyncIterator[list[Web]]:
    """Two servers."""
    async with web("default/orders/a", "default/orders/b") as servers:
        yield servers


async def register(stack: AsyncExitStack, registry: Registry, servers: list[Web], **more: object) -> None:
    """Register them as who they are, with a health endpoint."""
    for server in servers:
        id = server.key.rpartition("/")[2]
        await stack.enter_async_context(
            registry.register("orders", id=id, host="127.0.0.1", port=server.port, metadata=HEALTH, **more)  # type: ignore[arg-type]
        )


async def known(peers: Peers[httpx.AsyncClient], *ids: str) -> None:
    """Wait until so many can be called."""
    await until(lambda: {picked.instance.id for picked in peers.selection.members}, set(ids).__eq__, 40)


def get(path: str) -> object:
    """What `Peers.call` takes."""

    async def request(peer: Peer[httpx.AsyncClient]) -> str:
        answer = await peer.connection.get(path)
        return f"{peer.instance.id} {answer.status_code}"

    return request


async def test_a_kill_in_the_middle_of_calls(registry: Registry, two: list[Web]) -> None:
    """What may be done twice is done by the other one; what may not comes out as httpx said it; the prober sees it."""
    async with AsyncExitStack() as stack:
        await register(stack, registry, two)
        peers = await stack.enter_async_context(registry.peers("orders", dial=http(), policy=PickFirst()))
        await known(peers, "a", "b")
        assert await peers.call(get("/who")) == "a 200"

        async def get_late_elsewhere(peer: Peer[httpx.AsyncClient]) -> str:
            answer = await peer.connection.get("/hang" if peer.instance.id == "a" else "/who")
            return f"{peer.instance.id} {answer.status_code}"

        once = [asyncio.create_task(peers.call(get("/hang"))) for _ in range(5)]
        twice = [asyncio.create_task(peers.call(get_late_elsewhere, idempotent=True)) for _ in range(5)]
        await until(lambda: two[0].heard.count("/hang"), (10).__eq__)
        await two[0].kill()
        ended = await asyncio.gather(*once, return_exceptions=True)
        assert {type(error) for error in ended} <= {httpx.ReadError, httpx.RemoteProtocolError}
        assert await asyncio.gather(*twice) == ["b 200"] * 5
        assert await peers.call(get("/who")) == "b 200"
        await until(lambda: peers.directory.get("orders", "a"), lambda a: a is not None and a.health == "critical", 40)
        assert await peers.call(get("/fail")) == "b 503"


async def test_a_taken_over_address_is_not_called(registry: Registry, two: list[Web]) -> None:
    """Neither when it was taken over before the first call, nor between two calls over a kept connection."""
    async with AsyncExitStack() as stack:
        await register(stack, registry, two)
        dial = http(headers={"authorization": "secret"})
        peers = await stack.enter_async_context(registry.peers("orders", dial=dial, policy=PickFirst(), verify=True))
        await known(peers, "a", "b")
        assert await peers.call(get("/who")) == "a 200"
        async with peers.using() as peer:
            held = peer.connection
            assert (await held.get("/who")).status_code == 200
            assert two[0].heard == ["/health", "/who secret", "/who secret"]
            await two[0].kill()
            await two[0].start("default/search/x")
            with pytest.raises(NotItself, match="'default/search/x' answers there"):
                await held.post("/buy")
            with pytest.raises(NotItself):
                await asyncio.gather(*(held.post("/buy") for _ in range(5)))
        assert await peers.call(get("/who")) == "b 200"
        assert set(two[0].heard) == {"/health"}
        await two[0].kill()
        await two[0].start("")
        await known(peers, "a", "b")  # if it was probed in between, which the report of its failure brought about
        await two[1].kill()
        with pytest.raises(Unreachable) as caught:
            await peers.call(get("/who"))
        assert "does not say who it is" in "\n".join([str(caught.value), *caught.value.__notes__])
        await two[0].kill()
        await two[0].start()
        await until(lambda: [picked.instance.id for picked in peers.selection.members], lambda ids: "a" in ids, 40)
        assert await peers.call(get("/who")) == "a 200"


async def test_who_does_not_serve_is_not_called(registry: Registry, two: list[Web]) -> None:
    """Whose health is 503, by its own word, is passed over: at the first call, and on a kept connection."""
    async with AsyncExitStack() as stack:
        await register(stack, registry, two)
        peers = await stack.enter_async_context(registry.peers("orders", dial=http(), policy=PickFirst(), verify=True))
        await known(peers, "a", "b")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{two[0].port}") as own:
            await own.get("/ill")
            assert await peers.call(get("/who")) == "b 200"
            await own.get("/well")
            assert await peers.call(get("/who")) == "a 200"
            await own.get("/ill")
            assert await asyncio.gather(*(peers.call(get("/late")) for _ in range(2))) == ["a 200", "b 200"]
        assert [line for line in two[0].heard if line != "/health"] == ["/ill", "/well", "/who", "/ill", "/late"]


async def test_a_connection_that_is_made_beneath_asks_before_anything_else(registry: Registry, two: list[Web]) -> None:
    """Each of ten at once, on the same server; and requests of the caller go only after it has answered."""
    async with AsyncExitStack() as stack:
        await register(stack, registry, two[:1])
        peers = await stack.enter_async_context(registry.peers("orders", dial=http(), verify=True))
        await known(peers, "a")
        assert await asyncio.gather(*(peers.call(get("/late")) for _ in range(10))) == ["a 200"] * 10
        heard = two[0].heard
        assert heard.count("/late") == 10
        assert 2 <= heard.count("/health") <= 10
        assert heard[0] == "/health"


async def test_a_black_hole_does_not_take_all_the_time(registry: Registry, two: list[Web]) -> None:
    """One whose packets nobody takes, and one that takes the connection and says nothing, which verifying finds out."""
    async with AsyncExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        proxy = await stack.enter_async_context(proxy_to(f"http://127.0.0.1:{two[0].port}"))
        proxy.blackhole()
        for id, port in (("a0", full.getsockname()[1]), ("a1", proxy.port)):
            await stack.enter_async_context(
                registry.register("orders", id=id, host="127.0.0.1", port=port, metadata=HEALTH)
            )
        await register(stack, registry, two[1:])
        peers = await stack.enter_async_context(
            registry.peers("orders", dial=http(connect=30.0), policy=PickFirst(), verify=True)
        )
        await known(peers, "a0", "a1", "b")
        assert await peers.call(get("/who"), timeout=8.0) == "b 200"
        assert peers.connections == 3
        proxy.heal()
        await until(lambda: peers.connections, (2).__eq__, 20)  # it is not a1, whom it asked


async def test_who_leaves_and_who_stays(registry: Registry, two: list[Web]) -> None:
    """A process that drains and leaves loses no call, and its connections are closed; no task is left either."""
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(AsyncExitStack())
        await register(own, registry, two[:1])
        await register(stack, registry, two[1:])
        peers = await stack.enter_async_context(registry.peers("orders", dial=http()))
        await known(peers, "a", "b")
        calls = [asyncio.create_task(peers.call(get("/late"))) for _ in range(10)]
        await until(lambda: len(two[0].heard), (5).__eq__)
        assert peers.connections == 2
        await own.aclose()
        await known(peers, "b")
        assert sorted(await asyncio.gather(*calls)) == ["a 200"] * 5 + ["b 200"] * 5
        await until(lambda: peers.connections, (1).__eq__)
    assert [task for task in asyncio.all_tasks() if "orders" in task.get_name()] == []


async def test_a_server_that_keeps_connections_briefly_loses_no_call(registry: Registry) -> None:
    """Also when calls are rare: a request never meets one that is just closing the connection, as gunicorn does after
    2 s. Here it is lost every time, as it is elsewhere when the two cross. Neither does one that is dialed in advance.
    """
    keeps, loop = 2.0, asyncio.get_running_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        idle = loop.time()
        while await reader.readline():
            while await reader.readline() != b"\r\n":
                pass
            if loop.time() - idle >= keeps:
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            idle = loop.time()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, AsyncExitStack() as stack:
        port = server.sockets[0].getsockname()[1]
        await stack.enter_async_context(registry.register("orders", id="a", host="127.0.0.1", port=port))
        peers = await stack.enter_async_context(registry.peers("orders", dial=http()))
        await known(peers, "a")
        async with peers.using():  # it is dialed, and nothing is asked
            pass
        for _ in range(2):
            await asyncio.sleep(keeps)  # time is the point
            assert await peers.call(get("/who")) == "a 200"
        assert await peers.call(get("/who")) == "a 200"


@pytest.mark.parametrize("host", ["127.0.0.1", "LocalHost"])
async def test_the_connection_that_was_dialed_is_the_one_that_is_used(host: str) -> None:
    async with callee() as server:
        one = instance("orders", "a", 1, endpoints=(Endpoint(host=host, port=server.port, protocol="http"),))
        dialer = http()
        connection = await dialer.dial(one, one.endpoint)
        assert (await connection.get("/")).text == "ok"
        await dialer.close(connection)
        await until(lambda: server.connections)
        assert server.connections == 1


async def test_over_tls_the_same_connection_answers_and_is_called(registry: Registry, tmp_path: Path) -> None:
    """Also those that are made beneath; whoever has no certificate that is believed is unreachable."""
    shown, key = certificate(tmp_path, "a", "-addext", "subjectAltName=IP:127.0.0.1")
    server = Web("default/orders/a", shown, key)
    await server.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.kill)
        await register(stack, registry, [server], protocol="https")
        trust = http(tls=ssl.create_default_context(cafile=shown))
        peers = await stack.enter_async_context(registry.peers("orders", dial=trust, verify=True))
        await known(peers, "a")
        assert await asyncio.gather(*(peers.call(get("/late")) for _ in range(3))) == ["a 200"] * 3
        assert 2 <= server.heard.count("/health") <= 3
        async with peers.using() as peer:
            held = peer.connection
            await server.kill()
            await server.start("default/search/x")
            with pytest.raises(NotItself, match="'default/search/x' answers there"):
                await held.post("/buy")
        assert server.heard == ["/health"]
        others = await stack.enter_async_context(registry.peers("orders", dial=http()))
        await known(others, "a")
        with pytest.raises(Unreachable, match="certificate"):
            await others.call(get("/who"))


async def test_peers_of_a_service_a_capability_or_a_directory(registry: Registry, two: list[Web]) -> None:
    """Whichever is given, the same are called; what is not loaded, not there or makes no sense is said."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        early = await enter(registry.peers("orders", dial=http(), wait=0))
        if early.directory.state == "loading":  # it has just begun: nothing was awaited since
            with pytest.raises(NotLoaded):
                await early.call(get("/who"))
        assert await early.directory.loaded(10)
        with pytest.raises(NoneRegistered):
            await early.call(get("/who"))
        await register(stack, registry, two, capabilities=["Payments"])
        orders = await enter(registry.directory("orders", "refunds"))
        of = [
            await enter(registry.peers("orders", "refunds", dial=http())),
            await enter(registry.peers(capability="Payments", dial=http())),
            await enter(registry.peers(directory=orders, dial=http())),
            await enter(registry.peers("orders", directory=orders, dial=http(), protocol="http", metadata=HEALTH)),
        ]
        own = Outliers()
        of.append(await enter(registry.peers("orders", dial=http(), outliers=own)))
        assert [peers.selection.outliers for peers in of] == [registry.outliers] * 4 + [own]
        for peers in of:
            await known(peers, "a", "b")
            assert {await peers.call(get("/who")) for _ in range(2)} == {"a 200", "b 200"}
        with pytest.raises(NoneRegistered):
            await (await enter(registry.peers("refunds", directory=orders, dial=http()))).call(get("/who"))
        with pytest.raises(InvalidValue, match="name a service"):
            registry.peers(dial=http())
        with pytest.raises(InvalidValue, match="at most one of its services"):
            registry.peers(directory=orders, capability="Payments", dial=http())
        with pytest.raises(InvalidValue, match="limit"):
            registry.peers("orders", dial=http(), limit=0)
        with pytest.raises(InvalidValue, match="must be a dialer"):
            registry.peers("orders", dial=http)


def test_without_httpx_the_clients_work_and_say_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['httpx'] = None\n"
        "import adsum.clients\n"
        "try: adsum.clients.http()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert (done.stdout, done.stderr) == ("http() needs httpx: pip install 'adsum[http]'\n", "")
