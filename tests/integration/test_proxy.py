"""The tests' own proxy: what a test asks of it is what a client meets."""

from __future__ import annotations

import time

from adsum.events.broker import Broker, BrokerSettings
from adsum.projector.embedded import EmbeddedBroker
from tests.proxy import Proxy, proxy_to
from tests.waiting import until


async def _connected(proxy: Proxy) -> Broker:
    broker = Broker.open(BrokerSettings(url=proxy.url), "proxied")
    await broker.ready(5)
    return broker


async def test_it_carries_delays_and_heals(nats: EmbeddedBroker) -> None:
    async with proxy_to(nats.url) as proxy:
        broker = await _connected(proxy)
        proxy.delay["down"] = 0.3
        began = time.monotonic()
        await broker.flush()
        assert time.monotonic() - began >= 0.3
        proxy.heal()
        await broker.flush()
        assert proxy.carried["up"] > 0 < proxy.carried["down"]
        await broker.close()


async def test_a_cut_ends_connections_until_it_is_healed(nats: EmbeddedBroker) -> None:
    async with proxy_to(nats.url) as proxy:
        broker = await _connected(proxy)
        proxy.cut()
        await until(lambda: not broker.connected)
        await until(lambda: proxy.connections == 0)
        assert not broker.connected
        proxy.heal()
        await broker.ready(10)
        await broker.close()


async def test_a_black_hole_keeps_connections_and_delivers_what_waited(nats: EmbeddedBroker) -> None:
    async with proxy_to(nats.url) as proxy:
        broker = await _connected(proxy)
        heard: list[bytes] = []

        async def hear(message: object) -> None:
            heard.append(getattr(message, "data", b""))

        await broker.subscribe("said", hear)
        proxy.blackhole("up")
        before = proxy.carried["up"]
        await broker.publish("said", b"here")
        assert (proxy.carried["up"], heard, proxy.connections) == (before, [], 1)
        proxy.heal()
        await until(lambda: heard == [b"here"])
        await broker.close()


async def test_what_a_client_sent_before_it_closed_goes_on_late(nats: EmbeddedBroker, broker: Broker) -> None:
    heard: list[bytes] = []

    async def hear(message: object) -> None:
        heard.append(getattr(message, "data", b""))

    await broker.subscribe("said", hear)
    async with proxy_to(nats.url) as proxy:
        client = await _connected(proxy)
        proxy.hold_at(b"PUB said")
        await client.publish("said", b"late")
        await until(proxy.holds)
        await client.close()
        proxy.heal()
        await until(lambda: heard == [b"late"])
        await until(lambda: proxy.connections == 0)
