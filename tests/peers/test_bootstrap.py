"""Joining with one call: everything in one process, a process a role, and mixed, by the same code."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from adsum.clients import BrokerUnavailable, InvalidValue, Member, NotLoaded, bootstrap, connect
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.config import Config, load_config
from adsum.events.lifecycle import Deregistered, Event, Expired, Lapsed, ModeChanged, Registered
from adsum.events.names import Key
from adsum.events.streams import ensure_streams
from adsum.projector.embedded import EmbeddedBroker
from adsum.projector.errors import BrokerFailed, CatalogInUse
from adsum.projector.inside import adsumd as adsumd_inside
from tests.cli.programs import Running, environment, free_port, start
from tests.daemons import adsumd, events_of
from tests.house.tree import ROOT
from tests.making import key
from tests.waiting import until

ROLES = ROOT / "examples" / "roles.toml"
CAN = {
    "TraceIngestion": ["acceptor", "writer"],
    "Storage": ["writer"],
    "Routing": ["router"],
    "QueryExecution": ["querier"],
    "StorageMaintenance": ["compactor"],
}
NAMES = ["acceptor", "compactor", "querier", "router", "writer"]


@asynccontextmanager
async def joined(config: Config | Path, *roles: str, base: int = 50051) -> AsyncIterator[dict[str, Member]]:
    """One of each of these roles in this process."""
    async with AsyncExitStack() as stack:
        yield {
            role: await stack.enter_async_context(bootstrap(config, role, address=f"127.0.0.1:{port}", id=f"{role}-1"))
            for port, role in enumerate(roles, start=base)
        }


@asynccontextmanager
async def processes(url: str, folder: Path, *roles: str) -> AsyncIterator[dict[str, Running]]:
    """One of each of these roles in a process of its own, by the example."""
    config = folder / "roles.toml"
    config.write_text(f'{ROLES.read_text()}\n[nats]\nurl = "{url}"\n')
    async with AsyncExitStack() as stack:
        running = {}
        for port, role in enumerate(roles, start=50061):
            program = str(ROOT / "examples" / "one_role.py")
            running[role] = await start(
                [sys.executable, program, str(config), role, f"127.0.0.1:{port}"], environment(url)
            )
            stack.push_async_callback(running[role].stop)
        for role in roles:
            await running[role].prints("joined", 30)
        yield running


def seen(me: Member) -> dict[str, list[str]]:
    """Which roles a member finds for each capability."""
    return {capability: [one.service for one in me.discover(capability)] for capability in CAN}


def without(role: str) -> dict[str, list[str]]:
    """The same when a role is not there."""
    return {capability: [one for one in roles if one != role] for capability, roles in CAN.items()}


async def said_by_owner(broker: Broker, of: Key) -> list[type[Event]]:
    """What an instance said of itself; verdicts come and go where machines are slow."""
    return [type(event) for event in await events_of(broker, of) if event.by.kind == "owner"]


# ---- where it runs


async def test_everything_in_one_process(tmp_path: Path) -> None:
    """Broker, projector and five roles with the capabilities of the example; all of them leave before it ends."""
    data = tmp_path / "data"
    async with adsumd_inside(ROLES, data=data, listen="127.0.0.1:0") as config:
        async with joined(config, *NAMES) as members:
            for me in members.values():
                await until(lambda me=me: seen(me), CAN.__eq__)
                assert me.registration.description.capabilities == config.roles[me.role].capabilities
                assert (me.registration.description.heartbeat, me.registration.description.ttl) == (1.0, 3.0)
            [querier] = members["router"].discover("QueryExecution")
            assert (querier.id, querier.endpoint.address, querier.endpoint.protocol) == (
                "querier-1",
                f"127.0.0.1:{50051 + NAMES.index('querier')}",
                "grpc",
            )
        assert config.nats is not None
        async with connect(config.nats) as registry:
            await registry.broker.ready(10)
            for role in NAMES:
                said = await said_by_owner(registry.broker, key(f"{role}-1", role))
                assert said == [Registered, Deregistered]
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    async with adsumd(data, "--listen", "127.0.0.1:0") as daemon:  # the program goes on with the same folder
        assert int(daemon.line.rsplit("revision=", 1)[1]) >= 2 * len(NAMES)


async def test_a_process_a_role(tmp_path: Path, nats: EmbeddedBroker, broker: Broker) -> None:
    """Who is killed leaves `discover` after its TTL; who is stopped drains, and says goodbye after that."""
    config = replace(load_config(ROLES), nats=BrokerSettings(url=nats.url))
    async with (
        adsumd(tmp_path / "data", "--nats", nats.url),
        processes(nats.url, tmp_path, *NAMES) as running,
        bootstrap(config, "router", address="127.0.0.1:50099", id="watcher", capabilities=[]) as me,
    ):
        assert await until(lambda: seen(me), CAN.__eq__, 30)
        [querier], [compactor] = me.discover("QueryExecution"), me.discover("StorageMaintenance")
        running["querier"].send(signal.SIGKILL)
        await until(lambda: seen(me), without("querier").__eq__, 30)
        assert (told := me.directory.get("querier", querier.id)) is None or told.liveness == "stale"
        verdicts = [event for event in await events_of(broker, querier.key) if isinstance(event, Lapsed)]
        assert verdicts[-1].evidence.silent > config.ttl
        await running["writer"].prints("writer finds QueryExecution: nobody", 30)
        running["compactor"].send(signal.SIGTERM)
        assert await running["compactor"].code(30) == 0
        assert await said_by_owner(broker, compactor.key) == [Registered, ModeChanged, Deregistered]
        await until(lambda: me.discover("StorageMaintenance"), ().__eq__)
        await until(lambda: events_of(broker, querier.key), lambda said: isinstance(said[-1], Expired), 30)
        assert me.directory.get("router", "watcher") is not None


async def test_some_in_one_process_and_some_in_others(tmp_path: Path) -> None:
    """Those outside join the broker that is inside, and see the same."""
    async with (
        adsumd_inside(ROLES, data=tmp_path / "data", listen="127.0.0.1:0") as config,
        joined(config, "router", "writer", "acceptor") as members,
    ):
        assert config.nats is not None
        async with processes(config.nats.url, tmp_path, "querier", "compactor") as running:
            for me in members.values():
                await until(lambda me=me: seen(me), CAN.__eq__, 30)
            await running["querier"].prints("querier finds Routing: router 127.0.0.1:50051", 30)
            assert await members["writer"].drain("stopped")
            await running["querier"].prints("querier finds Storage: nobody", 30)
            await until(lambda: seen(members["router"]), without("writer").__eq__)


# ---- what it says of itself


async def test_what_is_given_goes_before_what_the_configuration_says(nats: EmbeddedBroker, broker: Broker) -> None:
    """And what neither says is as for any registration; without a host it is this process's address."""
    config = Config(heartbeat_interval=0.5, ttl=2.0, nats=BrokerSettings(url=nats.url), roles=load_config(ROLES).roles)
    given = {"capabilities": ["A"], "weight": 0, "zone": "eu-1", "metadata": {"a": "b"}}
    async with bootstrap(config, "querier", address=":50051", namespace="eu", **given) as me:
        said = me.registration.description
        assert (me.registration.key.namespace, me.registration.key.service) == ("eu", "querier")
        assert (said.capabilities, said.weight, said.zone, said.metadata) == (("A",), 0.0, "eu-1", {"a": "b"})
        assert (said.endpoints[0].address, said.endpoints[0].protocol) == ("127.0.0.1:50051", "grpc")
        assert (said.heartbeat, said.ttl) == (0.5, 2.0)
        assert me.id == me.registration.id
        assert me.registration.state == "registered"


@pytest.mark.parametrize(
    ("role", "more", "field"),
    [
        ("querer", {}, "role"),
        ("Querier", {}, "role"),
        ("querier", {"address": "127.0.0.1"}, "address"),
        ("querier", {"namespace": "No"}, "namespace"),
        ("querier", {"address": "0.0.0.0:80"}, "host"),
        ("querier", {"weight": -1}, "weight"),
        ("querier", {"id": "A"}, "instance id"),
    ],
)
async def test_what_breaks_a_rule_is_refused(role: str, more: dict[str, object], field: str) -> None:
    """Before anybody is asked anything: there is no broker here."""
    with pytest.raises(InvalidValue) as caught:
        async with bootstrap(ROLES, role, **({"address": "127.0.0.1:1"} | more)):  # type: ignore[arg-type]
            pass
    assert caught.value.field == field


async def test_a_configuration_may_name_no_roles(nats: EmbeddedBroker, broker: Broker, tmp_path: Path) -> None:
    """Then any role will do, with what is given."""
    file = tmp_path / "adsum.toml"
    file.write_text(f'[nats]\nurl = "{nats.url}"\n')
    async with bootstrap(str(file), "anything", address="127.0.0.1:1", capabilities=["X"]) as me:
        assert me.registration.description.capabilities == ("X",)
        assert (me.registration.description.heartbeat, me.registration.description.ttl) == (5.0, 15.0)


# ---- looking others up


async def test_what_is_found_comes_from_memory(tmp_path: Path) -> None:
    """The same tuple until something changes, in order; nobody is an answer, and not knowing is none."""
    async with (
        adsumd_inside(ROLES, data=tmp_path / "data", listen="127.0.0.1:0") as config,
        bootstrap(config, "router", address="127.0.0.1:1") as me,
        joined(config, "writer", "acceptor"),
    ):
        await until(lambda: seen(me)["TraceIngestion"], ["acceptor", "writer"].__eq__)
        assert me.discover("TraceIngestion") is me.discover("TraceIngestion")
        assert [one.id for one in me.discover("TraceIngestion")] == ["acceptor-1", "writer-1"]
        assert me.discover("KafkaIngestion") == ()
        with pytest.raises(InvalidValue, match="capability"):
            me.discover("no capability")


async def test_it_starts_while_the_broker_is_away(tmp_path: Path) -> None:
    """It does not know who is there, and says so; it joins when there is one."""
    port = free_port()
    config = replace(load_config(ROLES), nats=BrokerSettings(url=f"nats://127.0.0.1:{port}"))
    async with bootstrap(config, "querier", address="127.0.0.1:1", wait=0.3) as me:
        assert (me.registration.state, me.directory.state) == ("registering", "loading")
        with pytest.raises(NotLoaded):
            me.discover("Storage")
        with pytest.raises(BrokerUnavailable):
            await me.registration.registered(0.1)
        server = await EmbeddedBroker.start(tmp_path, port=port)
        try:
            await me.registry.broker.ready(10)
            await ensure_streams(me.registry.broker)
            await me.registration.registered(10)
            assert await me.directory.loaded(10)
            assert me.discover("Storage") == ()
        finally:
            await server.stop()


async def test_it_is_entered_once(nats: EmbeddedBroker, broker: Broker) -> None:
    """And knows nothing outside of its block."""
    me = bootstrap(Config(nats=BrokerSettings(url=nats.url)), "querier", address="127.0.0.1:1")
    with pytest.raises(RuntimeError, match="enter it first"):
        me.discover("Storage")
    async with me:
        with pytest.raises(RuntimeError, match="entered once"):
            await me.__aenter__()
        told = [str(me), str(me.registration), str(me.registry)]
        assert told == [
            "member default/querier",
            f"registration of default/querier/{me.id}",
            f"registry default at {nats.url}",
        ]
    with pytest.raises(RuntimeError, match="block is over"):
        me.registry.register("querier", port=1)
    with pytest.raises(RuntimeError, match="block is over"):
        me.registry.directory("querier")


# ---- adsumd inside


async def test_what_keeps_it_from_starting_comes_out(tmp_path: Path) -> None:
    """A folder in use, a port in use: the errors of the program."""
    async with adsumd_inside(data=tmp_path / "a", listen="127.0.0.1:0") as config:
        with pytest.raises(CatalogInUse):
            async with adsumd_inside(data=tmp_path / "a", listen="127.0.0.1:0"):
                pass
        assert config.nats is not None
        with pytest.raises(BrokerFailed, match="address already in use"):
            async with adsumd_inside(data=tmp_path / "b", listen=config.nats.url.removeprefix("nats://")):
                pass
        with pytest.raises(InvalidValue, match="listen"):
            async with adsumd_inside(data=tmp_path / "c", listen="4222"):
                pass
        with pytest.raises(InvalidValue, match="the embedded broker is one server"):
            async with adsumd_inside(data=tmp_path / "c", replicas=3):
                pass
        with pytest.raises(ExceptionGroup, match="two of its own"):
            await fail_inside(config, tmp_path / "d")


async def fail_inside(config: Config, data: Path) -> None:
    """Raise what a group of tasks raises in its block, which joined the broker that is there."""
    async with adsumd_inside(config, data=data) as same:
        assert same is config
        raise ExceptionGroup("two of its own", [ZeroDivisionError(), KeyError()])


async def test_when_it_ends_by_itself_the_block_ends(tmp_path: Path) -> None:
    """Its broker is killed: whoever is inside is cancelled, leaves as well as can be, and the reason comes out."""
    ended: list[str] = []
    with pytest.raises(BrokerFailed, match="ended by itself"):
        await lose_the_broker(tmp_path / "data", ended)
    assert ended == ["cancelled"]


async def lose_the_broker(data: Path, ended: list[str]) -> None:
    """Join, kill the broker, and see how the block ends."""
    async with (
        adsumd_inside(ROLES, data=data, listen="127.0.0.1:0") as config,
        bootstrap(config, "querier", address="127.0.0.1:1", id="q-1"),
    ):
        await kill_broker(data)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise


async def kill_broker(data: Path) -> None:
    """End the embedded broker of a folder with -9."""
    [file] = (data / "nats" / "ports").glob("nats-server_*.ports")
    process = await asyncio.create_subprocess_exec("kill", "-9", file.stem.removeprefix("nats-server_"))
    await process.wait()
