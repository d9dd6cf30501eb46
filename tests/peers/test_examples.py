"""Every program in examples/ does what its docstring says, on real servers."""

from __future__ import annotations

import ast
import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from adsum.clients import Registry, connect
from adsum.events.broker import Broker
from adsum.events.lifecycle import Deregistered, ModeChanged, Registered
from adsum.projector.embedded import EmbeddedBroker
from tests.cli.programs import Result, Running, environment, free_port, start
from tests.daemons import adsumd, events_of
from tests.house.tree import ROOT, readme
from tests.making import key
from tests.waiting import until

EXAMPLES = ROOT / "examples"


def program(name: str, *arguments: str) -> list[str]:
    """A command line that runs an example, with warnings as errors."""
    return [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]


@pytest.fixture
async def url(tmp_path: Path, nats: EmbeddedBroker, broker: Broker) -> AsyncIterator[str]:
    """A broker with an adsumd."""
    async with adsumd(tmp_path / "data", "--nats", nats.url):
        yield nats.url


@pytest.fixture
async def registry(url: str) -> AsyncIterator[Registry]:
    """The test's own registry there."""
    async with connect(url) as registry:
        await registry.broker.ready(10)
        yield registry


@asynccontextmanager
async def serving(url: str, name: str, *arguments: tuple[str, ...]) -> AsyncIterator[list[Running]]:
    """Some services of an example, each once it says that it serves."""
    async with AsyncExitStack() as stack:
        running = [await start(program(name, *each), environment(url)) for each in arguments]
        for one in running:
            stack.push_async_callback(one.stop)
        for one in running:
            await one.prints(" serves at ", 30)
        yield running


async def result(url: str, name: str, *arguments: str) -> Result:
    """How an example that ends by itself ended."""
    running = await start(program(name, *arguments), environment(url))
    try:
        return Result(await running.code(60), "\n".join(running.out), "\n".join(running.err))
    finally:
        await running.stop()


async def present(registry: Registry, service: str, many: int) -> list[str]:
    """Their ids, once so many can be called."""
    async with registry.directory(service) as directory:
        found = await until(lambda: directory.instances(routable=True), lambda some: len(some) == many, 30)
        return sorted(one.id for one in found)


async def leaves_in_order(one: Running, registry: Registry, service: str) -> None:
    """Told to stop it drains, says goodbye, and ends."""
    id = one.out[0].split()[0]
    one.send(signal.SIGTERM)
    assert await one.code(30) == 0, one.err
    assert one.err == []
    said = [type(event) for event in await events_of(registry.broker, key(id, service)) if event.by.kind == "owner"]
    assert said == [Registered, ModeChanged, Deregistered]


def test_each_says_how_to_run_it_and_is_linked() -> None:
    """Its docstring names its own command line, and the README its file."""
    for path in EXAMPLES.glob("*.py"):
        told = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert f"python examples/{path.name}" in told, path
    linked = set(re.findall(r"\]\(examples/([^)]+)\)", readme()))
    assert linked == {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".toml")}


async def test_the_http_pair(url: str, registry: Registry) -> None:
    """All who serve are called; one that drains under calls loses none; when all have left, nobody is there."""
    ports = [str(free_port()) for _ in range(3)]
    async with serving(url, "http_service.py", *((port,) for port in ports)) as services:
        ids = await present(registry, "greeter", 3)
        called = await result(url, "http_caller.py")
        assert (called.code, called.err) == (0, "")
        assert sorted(set(called.out.splitlines())) == [f"hello from {id}" for id in ids]
        assert len(called.out.splitlines()) == 10
        calling = asyncio.ensure_future(result(url, "http_caller.py"))
        await leaves_in_order(services[0], registry, "greeter")
        assert (await calling).out.count("hello from") == 10, (await calling).err
        await asyncio.gather(*(leaves_in_order(one, registry, "greeter") for one in services[1:]))
    nobody = await result(url, "http_caller.py")
    assert nobody.code == 0
    assert set(nobody.out.splitlines()) == {"nobody to call of default/greeter: no instance is registered"}


async def test_the_grpc_pair(url: str, registry: Registry) -> None:
    """Words come back in capitals, from both who serve."""
    async with serving(url, "grpc_service.py", (str(free_port()),), (str(free_port()),)) as services:
        await present(registry, "text", 2)
        called = await result(url, "grpc_caller.py", "one", "two", "three")
        assert (called.code, called.out.split(), called.err) == (0, ["ONE", "TWO", "THREE"], "")
        for one in services:
            await leaves_in_order(one, registry, "text")


async def test_the_fastapi_lifespan(url: str, registry: Registry) -> None:
    """It answers as itself, and drains while it still answers."""
    port = free_port()
    running = await start(program("fastapi_lifespan.py", str(port)), environment(url))
    try:
        [id] = await present(registry, "shop", 1)
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
            registry.directory("shop") as shop,
        ):
            answer = await client.get("/orders/7")
            assert (answer.json(), answer.headers["adsum-instance"]) == (
                {"number": 7, "by": id},
                f"default/shop/{id}",
            )
            assert shop.instances()[0].capabilities == ("orders",)
            running.send(signal.SIGTERM)
            await until(lambda: shop.instances(routable=True), ().__eq__)
            assert (await client.get("/health")).json() == {"id": id}, "it lingers"
        assert await running.code(30) in (0, -signal.SIGTERM)  # uvicorn sends itself the signal when all is done
        said = [type(event) for event in await events_of(registry.broker, key(id, "shop")) if event.by.kind == "owner"]
        assert said == [Registered, ModeChanged, Deregistered]
    finally:
        await running.stop()


async def test_the_cached_answers(url: str, registry: Registry) -> None:
    """Whoever asks again for a key asks the process that knows it, and only the keys of one that left are new."""
    keys = [f"key-{number}" for number in range(20)]
    ports = [str(free_port()) for _ in range(3)]
    async with serving(url, "cached_answers.py", *(("serve", port) for port in ports)) as services:
        await present(registry, "cache", 3)
        first, again = [await asked(url, keys) for _ in range(2)]
        assert {what for what, _ in first.values()} == {"new"}
        assert {what for what, _ in again.values()} == {"known"}
        assert {port for _, port in first.values()} == set(ports)
        await leaves_in_order(services[0], registry, "cache")
        last = await asked(url, keys)
        gone = {key for key, (_, port) in first.items() if port == ports[0]}
        assert {key for key, (what, _) in last.items() if what == "new"} == gone


async def asked(url: str, keys: list[str]) -> dict[str, tuple[str, str]]:
    """By key: whether it was known, and at which port."""
    told = await result(url, "cached_answers.py", "ask", *keys)
    assert (told.code, told.err) == (0, "")
    found = dict(line.split(": ") for line in told.out.splitlines())
    assert list(found) == keys
    return {key: (line.split()[0], line.split()[2]) for key, line in found.items()}


async def test_all_roles_in_one_process(tmp_path: Path) -> None:
    """Each finds all; all leave in order on SIGTERM, and nothing is left of the broker."""
    told = program("all_in_one.py", str(EXAMPLES / "roles.toml"), str(tmp_path / "data"), "127.0.0.1:0")
    running = await start(told, environment(""))
    try:
        roles = ["acceptor", "compactor", "querier", "router", "writer"]
        for role in roles:
            await running.prints(f"{role} finds TraceIngestion: acceptor 127.0.0.1:50051, writer 127.0.0.1:50052", 30)
        running.send(signal.SIGTERM)
        assert await running.code(30) == 0, running.err
        assert sorted(line.removesuffix(" left") for line in running.out if line.endswith(" left")) == roles
        assert running.err == []
    finally:
        await running.stop()
