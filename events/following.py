"""Following a stream for ever: a reader, and another one whenever it may have missed something."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from .backoff import backoff
from .broker import Broker
from .errors import BrokerRefused, BrokerUnavailable, StreamMissing
from .outage import Outage
from .reader import Message, ReaderLost, StreamReader

__all__ = ["StartAgain", "follow"]

BATCH = 1000


class StartAgain(Exception):
    """Raised by `take`: what was known is to be read anew. No trouble, so nothing is said of it."""


async def follow(
    broker: Broker,
    stream: str,
    take: Callable[[Sequence[Message]], Awaitable[None]],
    *,
    outage: Outage,
    before: Callable[[], Awaitable[int]],
) -> None:
    """Give every message of `stream` to `take`, in order and in batches, until cancelled.

    `before` is awaited before each new reader and gives the sequence to begin at: 1 is the beginning. An empty
    batch tells once per reader that the end of what was stored has been reached. What the broker cannot or will not
    do now is tried again, spaced out, and told through `outage`. Errors of `take` and `before` go to the caller,
    except ReaderLost, BrokerUnavailable and BrokerRefused. Raises StreamMissing: no trying again brings a stream back.
    """
    delays = backoff()
    while True:
        try:
            async with StreamReader(broker, stream, start=await before()) as reader:
                while messages := await reader.to_end(BATCH):
                    await take(messages)
                    outage.over()
                await take(())
                outage.over()
                delays = backoff()
                while True:
                    await take(await reader.batch(BATCH))
        except StartAgain:
            continue
        except StreamMissing:
            raise
        except (ReaderLost, BrokerUnavailable, BrokerRefused) as error:
            outage.goes_on(error)
        await asyncio.sleep(next(delays))
