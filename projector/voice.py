"""The connection over which verdicts go into the log: one that keeps nothing for later."""

from __future__ import annotations

from collections.abc import Callable

from adsum.events.broker import Broker

__all__ = ["ACKNOWLEDGED_WITHIN", "Voice"]

ACKNOWLEDGED_WITHIN = 2.0
"""Seconds in which what was said is to be acknowledged, else the connection is closed."""


class Voice:
    """Opened when there is something to say. `open_broker` makes a connection that keeps nothing for later
    (`keep_unsent=False`)."""

    def __init__(self, open_broker: Callable[[], Broker]) -> None:
        self._open = open_broker
        self._broker: Broker | None = None

    async def ready(self) -> Broker:
        """The connection, once it stands. Raises BrokerUnavailable, BrokerRefused."""
        if self._broker is None:
            self._broker = self._open()
        await self._broker.ready(ACKNOWLEDGED_WITHIN)
        return self._broker

    async def close(self) -> None:
        """Close it: what may still be on its way goes with it. The next word opens another one."""
        if self._broker is not None:
            broker, self._broker = self._broker, None
            await broker.close()
