"""A deploy under load: one instance after the other is replaced, and no call fails."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from adsum.events.broker import Broker
from adsum.projector.embedded import EmbeddedBroker
from tests.cli.programs import Running, environment, start
from tests.daemons import adsumd, topology
from tests.making import key
from tests.proxy import proxy_to
from tests.waiting import until

from .looking import is_gone, is_up

INSTANCES, CALLERS = 2, 2
BEHIND = 0.25
"""Seconds by which callers hear of everything late: less than a shop goes on serving for them."""


async def test_row_20_a_rolling_restart(tmp_path: Path, nats: EmbeddedBroker, broker: Broker) -> None:
    """Drain, wait until callers have seen it, finish what is in flight, say goodbye, exit: no call fails, though each
    instance is replaced while several processes call all the time, each by its own directory, which lags a little.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(adsumd(tmp_path / "data", "--nats", nats.url))

        proxy = await stack.enter_async_context(proxy_to(nats.url))

        async def run(program: str, url: str = nats.url) -> Running:
            script = str(Path(__file__).with_name(program))
            running = await start([sys.executable, script, url, "shop"], environment(url))
            stack.push_async_callback(running.stop)
            await until(lambda: running.out, seconds=30)
            return running

        async def open_shop() -> Running:
            shop = await run("shop.py")
            await until(lambda: topology(broker, key(shop.out[0], "shop")), is_up)
            return shop

        old = [await open_shop() for _ in range(INSTANCES)]
        callers = [await run("caller.py", proxy.url) for _ in range(CALLERS)]
        proxy.delay["down"] = BEHIND
        new = []
        for shop in old:
            new.append(await open_shop())
            shop.send(signal.SIGTERM)
            assert await shop.code(30) == 0, shop.err
            assert is_gone(await until(lambda shop=shop: topology(broker, key(shop.out[0], "shop")), is_gone))
        for caller in callers:
            caller.send(signal.SIGTERM)
            assert await caller.code(30) == 0, caller.err
            told = json.loads(caller.out[-1])
            assert told["failed"] == []
            assert set(told["answered"]) == {shop.out[0] for shop in (*old, *new)}
