"""Who may publish the next tick, and for how long its leader may speak."""

from __future__ import annotations

import asyncio
import time

import pytest

from adsum.events.signals import Tick
from adsum.projector.beats import LastTick
from adsum.projector.leader import HOLDS_FOR, RESIGNED, TAKEOVER_AFTER, Lease, may_take


def last(leader: str, read_at: float, first: bool = False) -> LastTick:
    """The last tick that was read."""
    return LastTick(Tick(leader=leader, number=1), 1, read_at, first)


@pytest.mark.parametrize(
    ("tick", "quiet_since", "now", "may"),
    [
        (None, 0.0, 0.0, True),
        (last(RESIGNED, 100.0), 0.0, 100.0, True),
        (last("home/before", 100.0, first=True), 0.0, 100.0, True),
        (last("home/copy", 100.0), 0.0, 100.0, False),
        (last("home-of-another/x", 100.0, first=True), 0.0, 100.0, False),
        (last("other/x", 100.0), 0.0, 100.0 + TAKEOVER_AFTER, False),
        (last("other/x", 100.0), 0.0, 100.1 + TAKEOVER_AFTER, True),
        (last("other/x", 100.0), 200.0, 200.0 + TAKEOVER_AFTER, False),
        (last("other/x", 100.0), 200.0, 200.1 + TAKEOVER_AFTER, True),
    ],
)
def test_may_take(tick: LastTick | None, quiet_since: float, now: float, may: bool) -> None:
    assert may_take(tick, "home", quiet_since, now) is may


async def test_a_lease_holds_for_less_than_others_wait() -> None:
    assert HOLDS_FOR < TAKEOVER_AFTER
    lease = Lease()
    assert not lease.holds
    lease.renew(time.monotonic())
    assert lease.holds
    lease.renew(time.monotonic() - HOLDS_FOR)
    assert not lease.holds
    lease.renew(time.monotonic())
    lease.end()
    assert not lease.holds


async def test_who_waits_for_a_lease_goes_on_with_the_next_tick_that_stands() -> None:
    lease = Lease()
    waiting = asyncio.create_task(lease.held())
    await asyncio.sleep(0)
    lease.renew(time.monotonic() - HOLDS_FOR)  # one that was told too late
    await asyncio.sleep(0)
    assert not waiting.done()
    lease.renew(time.monotonic())
    await waiting
