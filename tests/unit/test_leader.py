"""Who may publish the next tick."""

from __future__ import annotations

import pytest

from adsum.events.signals import Tick
from adsum.projector.beats import LastTick
from adsum.projector.leader import RESIGNED, TAKEOVER_AFTER, may_take


def last(leader: str, read_at: float) -> LastTick:
    """The last tick that was read."""
    return LastTick(Tick(leader=leader, number=1), 1, read_at)


@pytest.mark.parametrize(
    ("tick", "quiet_since", "now", "may"),
    [
        (None, 0.0, 0.0, True),
        (last(RESIGNED, 100.0), 0.0, 100.0, True),
        (last("me", 100.0), 0.0, 100.0, True),
        (last("other", 100.0), 0.0, 100.0 + TAKEOVER_AFTER, False),
        (last("other", 100.0), 0.0, 100.1 + TAKEOVER_AFTER, True),
        (last("other", 100.0), 200.0, 200.0 + TAKEOVER_AFTER, False),
        (last("other", 100.0), 200.0, 200.1 + TAKEOVER_AFTER, True),
    ],
)
def test_may_take(tick: LastTick | None, quiet_since: float, now: float, may: bool) -> None:
    assert may_take(tick, "me", quiet_since, now) is may
