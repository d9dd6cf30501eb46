"""The permissions of docs/operations.md, as they stand there: a real server, a real adsumd, the four users."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

from adsum.clients import History, connect
from adsum.events import subjects
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.codec import encode
from adsum.events.errors import BrokerRefused, BrokerUnavailable
from adsum.events.signals import Heartbeat
from adsum.events.streams import EVENTS, TOPOLOGY
from tests.cli.programs import Adsum
from tests.daemons import adsumd
from tests.house.tree import ROOT
from tests.making import key, registered
from tests.servers import Server
from tests.waiting import until

USERS = ("adsumd", "orders", "watcher", "operator")


def page_config(store: Path) -> str:
    """The configuration on the page; only where it listens and stores is the test's own."""
    page = (ROOT / "docs" / "operations.md").read_text()
    [config] = re.findall(r"^```\n(listen: .*?)^```$", page, re.MULTILINE | re.DOTALL)
    listen, store_dir = 'listen: "127.0.0.1:4222"\n', 'store_dir: "/var/lib/nats"'
    assert listen in config
    assert store_dir in config
    return str(config).replace(listen, "").replace(store_dir, f'store_dir: "{store}"')


class Guarded:
    """A server with the page's users, and files that let each of them in."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self._folder = server, folder

    def settings(self, user: str) -> BrokerSettings:
        """What lets this user in."""
        return BrokerSettings(url=self.server.url, user=user, password=f"secret-of-{user}")

    def file(self, user: str) -> Path:
        """The same as a configuration file."""
        said = self.settings(user)
        file = self._folder / f"{user}.toml"
        file.write_text(f'[nats]\nurl = "{said.url}"\nuser = "{said.user}"\npassword = "{said.password}"\n')
        return file

    def command(self, user: str) -> Adsum:
        """The command as this user."""
        command = Adsum(self.server.url)
        command.env["ADSUM_CONFIG"] = str(self.file(user))
        return command

    @property
    def violations(self) -> list[str]:
        """What the server refused."""
        lines = (self.server.folder / "log").read_text().splitlines()
        return [line for line in lines if "Violation" in line]


@pytest.fixture
async def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Guarded]:
    """The page's server with an adsumd that is the page's user."""
    for user in USERS:
        monkeypatch.setenv(f"{user.upper()}_PASSWORD", f"secret-of-{user}")
    server = Server(tmp_path / "server", page_config(tmp_path / "store"), jetstream=False)
    await server.start()
    found = Guarded(server, tmp_path)
    try:
        async with adsumd(tmp_path / "data", "--config", str(found.file("adsumd"))):
            yield found
    finally:
        await server.stop()


async def test_each_may_do_its_own_work_and_is_refused_nothing_of_it(guarded: Guarded) -> None:
    operator, watcher = guarded.command("operator"), guarded.command("watcher")
    watching = await watcher.start("watch", "--json")
    async with (
        connect(guarded.settings("orders")) as registry,
        registry.register("orders", id="o-1", port=8080, heartbeat=0.2, ttl=0.6) as me,
        registry.directory() as everybody,
    ):
        assert me.state == "registered"
        await until(lambda: everybody.get("orders", "o-1"))
        await watching.prints('"joined"')
        done = await operator("drain", "orders", "o-1", "--reason", "kernel update")
        assert done.code == 0, done.err
        await until(lambda: me.standing.mode, lambda mode: mode == "draining")  # it reads the log for what was said
        assert await me.serve()
        await until(lambda: everybody.instances(routable=True))
        assert await registry.report(everybody.instances()[0], reason="nobody listens there")
        await until(lambda: _reports(watcher))
        for name in (["status"], ["services"], ["instances", "--all"], ["log"]):
            done = await watcher(*name)
            assert done.code == 0, done.err
        assert everybody.state == "live"
    await watching.prints('"left"')
    done = await operator("deregister", "orders", "o-1")
    assert done.code == 0, done.err
    assert "already" in done.err
    await watcher.stop()
    assert guarded.violations == []


async def test_a_lease_needs_no_other_rights_than_a_registration(guarded: Guarded) -> None:
    """And one that may not be said is refused, which is no outage."""
    async with connect(guarded.settings("orders")) as registry:
        leases = registry.leases()
        lease = await leases.register("orders", "127.0.0.1:8080", id="o-1")
        await leases.renew(lease)
        await leases.deregister(lease)
        assert await anext(leases.watch("orders")) == ()
        assert guarded.violations == []
        with pytest.raises(BrokerRefused, match=r"adsum.v1.default.event.billing.b-1.*"):
            await registry.leases(timeout=1.0).register("billing", "127.0.0.1:8080", id="b-1")
    async with connect(guarded.settings("watcher")) as registry:
        with pytest.raises(BrokerRefused, match=r"adsum.v1.default.event.orders.o-1.*"):
            await registry.leases(timeout=1.0).register("orders", "127.0.0.1:8080", id="o-1")


async def _reports(watcher: Adsum) -> int:
    """How many reports the leader has counted."""
    done = await watcher("status", "--json")
    assert done.code == 0, done.err
    return int(done.json["leader"]["reports"])


async def test_who_may_look_may_ask_what_happened_and_orders_only_of_its_namespace(guarded: Guarded) -> None:
    orders, watcher = (Broker.open(guarded.settings(user), user) for user in ("orders", "watcher"))
    await orders.ready(10)
    await watcher.ready(10)
    assert (await History(watcher).status()).daemon == (await History(orders).status("default")).daemon
    assert (await History(watcher).world()).items == (await History(orders).world(namespace="default")).items == ()
    found = await watcher.request("$SRV.PING", b"")
    assert msgspec.json.decode(found.data)["name"] == "adsum"
    assert guarded.violations == []
    with pytest.raises(BrokerRefused, match=r"adsum.v1._all.ask.world: .*permissions violation"):
        await History(orders, timeout=1).world()
    await orders.close()
    await watcher.close()


async def test_an_adsumd_that_may_not_listen_says_so_and_goes_on(guarded: Guarded, tmp_path: Path) -> None:
    """As with a configuration of before there were questions."""
    config, before = guarded.server.config, re.compile(r', "adsum\.v1\.\*\.ask\.\*", "\$SRV\.\*"[^]]*')
    assert before.search(config)
    await guarded.server.reload(before.sub("", config))
    async with adsumd(tmp_path / "other", "--config", str(guarded.file("adsumd"))) as daemon:
        await until(lambda: "listening as the service adsum: listen to $SRV.PING: nats: permissions" in daemon.stderr)
        await guarded.server.reload(config)
        await until(lambda: "listening as the service adsum: works again" in daemon.stderr, seconds=30)


async def test_orders_may_not_speak_for_billing(guarded: Guarded) -> None:
    foreign = registered()
    async with connect(guarded.settings("orders")) as registry:
        await registry.broker.ready(10)
        with pytest.raises(BrokerRefused, match=r"event\.billing\.b-1: .*permissions violation"):
            await registry.broker.store(EVENTS, subjects.event(key("b-1", "billing")), encode(foreign), {}, timeout=1)
        async with registry.register("billing", id="b-2", port=8080, wait=0) as me:
            with pytest.raises(BrokerUnavailable, match=r"event\.billing\.b-2: .*permissions violation"):
                await me.registered(timeout=8)
        await registry.broker.publish(subjects.beat(key("b-1", "billing"), foreign.term), encode(Heartbeat(1)))
        await until(lambda: any(".beat.billing." in line for line in guarded.violations))
    log = await guarded.command("watcher")("log", "--json")
    assert (log.code, log.out) == (0, "")


async def test_a_watcher_follows_and_may_not_publish(guarded: Guarded) -> None:
    async with (
        connect(guarded.settings("orders")) as owner,
        connect(guarded.settings("watcher")) as registry,
        registry.directory("orders") as orders,
        owner.register("orders", id="o-1", port=8080),
    ):
        await until(lambda: orders.get("orders", "o-1"))
        assert orders.state == "live"
        for stream, subject in ((EVENTS, subjects.event(key("o-1"))), (TOPOLOGY, subjects.topology(key("o-1")))):
            with pytest.raises(BrokerRefused, match="permissions violation"):
                await registry.broker.store(stream, subject, b"{}", {}, timeout=1)


async def test_a_watcher_is_told_that_it_may_not_drain(guarded: Guarded) -> None:
    async with connect(guarded.settings("orders")) as owner, owner.register("orders", id="o-1", port=8080) as me:
        refused = await guarded.command("watcher")("drain", "orders", "o-1")
        assert refused.code == 1
        assert "permissions violation" in refused.err.lower()
        assert me.standing.mode == "serving"


async def test_who_may_make_consumers_may_have_stored_words_delivered_elsewhere(guarded: Guarded) -> None:
    """What the page warns of: the permissions stop mistakes, not a process that means harm."""
    orders, watcher = (Broker.open(guarded.settings(user), user) for user in ("orders", "watcher"))
    heard: list[bytes] = []

    async def hear(msg: Msg) -> None:
        heard.append(msg.data)

    await orders.ready(10)
    await watcher.ready(10)
    await watcher.subscribe(subjects.namespace_mark("default"), hear)
    await orders.store(EVENTS, subjects.event(key("o-9")), b"anything", {})
    elsewhere = ConsumerConfig(deliver_subject=subjects.namespace_mark("default"), ack_policy=AckPolicy.NONE)
    await orders.create_consumer(EVENTS, elsewhere)
    await until(lambda: b"anything" in heard)
    await orders.close()
    await watcher.close()
