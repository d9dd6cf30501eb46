"""Who may publish the next tick."""

from __future__ import annotations

import pytest

from adsum.events.signals import Tick
from adsum.projector.beats import LastTick
from adsum.projector.leader import RESIGNED, TAKEOVER_AFTER, may_take


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
