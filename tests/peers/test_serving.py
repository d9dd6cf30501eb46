"""A registration that fits a server's lifespan: what `serving` does at the edges."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from adsum.clients import Registration, connect, serving
from adsum.clients.peers.httpx_dialer import LIMITS
from adsum.clients.serving import OWN
from adsum.events.lifecycle import Deregistered, ModeChanged, Registered
from adsum.events.names import Key
from tests.cli.programs import free_port, start
from tests.daemons import adsumd, events_of
from tests.house.tree import ROOT
from tests.peers.deployed import SERVICE
from tests.peers.deploying import Fleet, fleet_at
from tests.waiting import until


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Servers at an adsumd."""
    async with AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(adsumd(tmp_path / "data", "--listen", "127.0.0.1:0"))
        yield await fleet_at(daemon.url, tmp_path, stack)


async def said(fleet: Fleet, id: str) -> list[type]:
    """What the log has of one."""
    return [type(event) for event in await events_of(fleet.broker, Key("default", SERVICE, id))]


async def test_who_is_in_a_hurry_sends_the_signal_twice(fleet: Fleet) -> None:
    """Then it stops without waiting for callers, and says goodbye all the same."""
    server = await fleet.open(settle=600)
    server.running.send(signal.SIGTERM)
    await until(lambda: said(fleet, server.id), lambda types: ModeChanged in types, 20)
    server.running.send(signal.SIGTERM)
    assert await server.running.code(30) == -signal.SIGTERM
    assert await said(fleet, server.id) == [Registered, ModeChanged, Deregistered]


async def test_a_second_start_at_a_taken_port_takes_nothing_over(fleet: Fleet) -> None:
    """uvicorn runs the lifespan before it finds that the port is taken; the one who has it stays registered."""
    server = await fleet.open()
    second = await fleet.launch(server.id, server.port)
    assert await second.running.code(30) == 3  # as uvicorn says it
    async with connect(fleet.url) as registry:
        await registry.broker.ready(10)
        async with serving(registry.register(SERVICE, id=server.id, host="127.0.0.1", port=server.port)):
            await asyncio.sleep(OWN / 2)  # time is the point: a server that cannot listen ends sooner
    assert await said(fleet, server.id) == [Registered]
    assert await fleet.routable(server)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_the_lifespan_of_the_page(fleet: Fleet, tmp_path: Path, loop: str) -> None:
    """What docs/operations.md shows is what uvicorn's own command runs; all numbers there are those of the code."""
    page = (ROOT / "docs" / "operations.md").read_text()
    [example] = re.findall(r"^```python\n([^`]*serving\([^`]*)^```$", page, re.MULTILINE)
    port = str(free_port())
    (tmp_path / "orders.py").write_text(example.replace("nats://127.0.0.1:4222", fleet.url).replace("8080", port))
    command = [sys.executable, "-m", "uvicorn", "--loop", loop, "--port", port, "orders:app"]
    server = await start(command, dict(os.environ), cwd=tmp_path)
    fleet.stack.push_async_callback(server.stop)
    async with connect(fleet.url) as registry, registry.directory(SERVICE) as orders:
        [me] = await until(lambda: orders.instances(routable=True), seconds=30)
        server.send(signal.SIGTERM)
        assert await server.code(30) == -signal.SIGTERM
    assert await said(fleet, me.id) == [Registered, ModeChanged, Deregistered]
    waits = inspect.signature(Registration.drain).parameters
    assert f"`told` = {waits['told'].default:g} s" in page
    assert f"`settle` = {waits['settle'].default:g} s" in page
    assert f"gives up a connection after {LIMITS.keepalive_expiry:g} s" in page


async def test_it_is_registered_when_the_port_is_open_and_the_handler_comes_back(fleet: Fleet) -> None:
    """Not before; a port that was open already is its own if the block goes on. A block without a server leaves."""
    port, before = free_port(), signal.getsignal(signal.SIGTERM)
    async with connect(fleet.url) as registry:
        async with serving(registry.register(SERVICE, id="never", host="127.0.0.1", port=port)) as me:
            assert signal.getsignal(signal.SIGTERM) != before
            assert me.state == "registering"
        async with (
            serving(registry.register(SERVICE, id="one", host="127.0.0.1", port=port)) as me,
            await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port),
        ):
            await me.registered(20)
            async with serving(registry.register(SERVICE, id="two", host="127.0.0.1", port=port)) as other:
                await other.registered(20)
        assert signal.getsignal(signal.SIGTERM) == before
    assert await said(fleet, "never") == []
    assert await said(fleet, "one") == await said(fleet, "two") == [Registered, Deregistered]


async def test_a_registration_that_ends_of_a_bug_is_told_at_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server goes on; in the end it raises."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    async def serve() -> None:
        port = free_port()
        async with (
            connect(fleet.url) as registry,
            await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port),
            serving(registry.register(SERVICE, host="127.0.0.1", port=port)) as me,
        ):
            await me.registered(20)
            monkeypatch.setattr("adsum.clients.reconciler.next_event", broken)
            updating = asyncio.create_task(me.update(weight=2))
            await until(lambda: "no longer registered" in caplog.text)
            updating.cancel()

    with pytest.raises(ExceptionGroup) as caught:
        await serve()
    assert caught.group_contains(RuntimeError, match="a bug")


async def test_in_another_thread_it_leaves_signals_alone(fleet: Fleet) -> None:
    """Where Python lets nobody have them, as in the test clients of web frameworks."""
    before = signal.getsignal(signal.SIGTERM)

    async def main() -> None:
        async with connect(fleet.url) as registry:
            port = free_port()
            me = registry.register(SERVICE, id="threaded", host="127.0.0.1", port=port)
            async with serving(me), await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
                await me.registered(20)

    errors: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001  # told below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert errors == []
    assert signal.getsignal(signal.SIGTERM) == before
    assert await said(fleet, "threaded") == [Registered, Deregistered]
