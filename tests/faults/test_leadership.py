"""Leadership under faults: a paused leader, and a successor that lags behind the log."""

from __future__ import annotations

import re
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from adsum.clients import connect
from adsum.events.broker import Broker, BrokerSettings
from adsum.events.lifecycle import Expired, Lapsed
from adsum.projector.leader import RESIGNED, TAKEOVER_AFTER
from tests.daemons import AdsumDaemon, adsumd
from tests.observing import an_instance_dies, changes_heard, fleet, last_tick, terms_of_office, that_change_nothing
from tests.observing import ticks_heard, verdicts_on, whole_log
from tests.servers import Server
from tests.waiting import until

USERS = """
trace: true
authorization { users: [{user: one, password: a}, {user: two, password: a}, {user: test, password: a}] }
"""
SPOKEN = re.compile(r'user:(\w+)" - <<- \[H?PUB (adsum\.\S+)')
TTL = 1.5


class Bench:
    """A broker that writes down who says what, and two daemons on it under names of their own."""

    def __init__(self, server: Server, one: AdsumDaemon, two: AdsumDaemon, bus: Broker) -> None:
        self._server, self._daemons, self.bus = server, {"one": one, "two": two}, bus

    def url(self, user: str) -> str:
        return self._server.url.replace("//", f"//{user}:a@")

    def spoken(self) -> list[tuple[str, str]]:
        """(user, subject) of all that was ever published, in the order in which the broker read it."""
        return SPOKEN.findall((self._server.folder / "log").read_text(errors="replace"))
