"""Leases: lives that their owner keeps up by hand. No task of ours renews one: who stops renewing it expires.

What became of a lease is known from the log alone. Each renewal stores a heartbeat and then asks the log's leader for
the last word on the instance: two round trips, no subscription, nothing to keep in step. A cache or a watch would save
the second one and could be late or wrong; the log cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress

from adsum.events import subjects
from adsum.events.backoff import backoff
from adsum.events.broker import Broker
from adsum.events.codec import encode
from adsum.events.description import (
    DEFAULT_PROTOCOL,
    DEFAULT_TTL,
    MAX_REASON,
    MIN_HEARTBEAT,
    Description,
    Endpoint,
    describe,
    split_address,
)
from adsum.events.errors import BrokerRefused, BrokerUnavailable, Unacknowledged
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Deregistered, Registered
from adsum.events.lifecycle import Expired as ExpiredEvent
from adsum.events.log import Outrun, Word, last_word, say
from adsum.events.names import Key, check_label, check_text
from adsum.events.numbers import check_number
from adsum.events.reader import ReaderLost
from adsum.events.signals import Heartbeat
from adsum.events.streams import BEATS, EVENTS

from .directory import Directory
from .errors import Expired, Unconfirmed
from .life import Continue, Decision, Life, Register, Standing, Withdraw, Yield, begin
from .looking import understand
from .notice import connection
from .watching import Watch

__all__ = ["Lease", "Leases"]


class Lease:
    """One life of one instance, kept up by hand. `term` is its token: all that is said of it names it."""

    def __init__(self, key: Key, description: Description) -> None:
        self.key, self.description, self.term = key, description, new_id()
        self._life = Life()
        self._counter = 0
        self._last: Word | None = None  # the last word that was looked at and left it alive
        self._over: Expired | None = None

    @property
    def id(self) -> str:
        """The instance id."""
        return self.key.id

    @property
    def ttl(self) -> float:
        """Seconds: renew it well within them."""
        return self.description.ttl

    def __repr__(self) -> str:
        return f"<lease {self.key}, term {self.term}>"


class Leases:
    """Made by `Registry.leases`. `timeout`: seconds that each call waits for the broker, at most.

    An outage of the broker raises BrokerUnavailable, whatever is asked, and never Expired: who cannot ask does not
    know. Ask again; the life goes on if it is heard in time, and while nobody can be heard nobody is judged.
    """

    def __init__(
        self,
        broker: Broker,
        namespace: str,
        directory: Callable[[str], Directory],
        watching: set[asyncio.Task[None]],
        *,
        timeout: float,
    ) -> None:
        self._broker, self._namespace, self._timeout = broker, namespace, timeout
        self._directory, self._watching = directory, watching
        self._by = Author("owner", broker.name)

    async def register(
        self,
        service: str,
        endpoint: Endpoint | str,
        ttl: float = DEFAULT_TTL,
        *,
        id: str | None = None,
        protocol: str = DEFAULT_PROTOCOL,
        capabilities: Iterable[str] = (),
        metadata: Mapping[str, str] | None = None,
        version: str = "",
        zone: str = "",
        weight: float = 1.0,
    ) -> Lease:
        """Begin a life: it is in the log when this returns. Silent for a `ttl` it is stale, for two it is gone.

        `endpoint`: one, or "host:port", which speaks `protocol`. `ttl`: seconds. `id`: a new UUIDv7 unless given; a
        given one takes over from whoever has it. Raises InvalidValue before anything is sent; BrokerRefused;
        Unconfirmed, a BrokerUnavailable, when it is not known to be there within the timeout; Expired if it ended
        meanwhile.
        """
        check_number("ttl", ttl, "must be a positive number of seconds", lambda seconds: seconds > 0)
        if not isinstance(endpoint, Endpoint):
            host, port = split_address("endpoint", endpoint)
            endpoint = Endpoint(host=host, port=port, protocol=protocol)
        described = describe(
            [endpoint],
            capabilities=capabilities,
            metadata=metadata,
            version=version,
            zone=zone,
            weight=weight,
            heartbeat=max(ttl / 3, MIN_HEARTBEAT),
            ttl=ttl,
        )
        called = check_label("instance id", new_id() if id is None else id)
        lease = Lease(Key(self._namespace, check_label("service", service), called), described)
        await self._insist(lease)
        return lease

    async def renew(self, lease: Lease) -> None:
        """Say that it is still here: the heartbeat is stored, and the life was not over then.

        One that is stale revives by it. Raises Expired when it is over, BrokerUnavailable, BrokerRefused.
        """
        async with self._within(lease):
            await self._renew(lease)

    async def deregister(self, lease: Lease, reason: str = "") -> None:
        """End it. Harmless when it is over already, and when another life has the id: that one is never ended.

        Raises BrokerUnavailable, BrokerRefused: then it may be there still; ask again, or let it expire.
        """
        check_text("reason", reason, MAX_REASON)
        async with self._within(lease):
            with suppress(Expired):
                await self._end(lease, reason)

    def watch(self, service: str, *, routable: bool = True) -> Watch:
        """The whole list of who is there, first as it is and then whenever it differs: `async for instances in …`

        `routable`: only those that are fit to be called, so that who is silent for a TTL leaves it.
        """
        return Watch(self._directory(service), routable, self._watching)

    # ---- doing it

    async def _insist(self, lease: Lease) -> None:
        """Register, and try again what the broker does not do, as long as there is time."""
        trouble: BrokerUnavailable | BrokerRefused | None = None
        delays = backoff()
        try:
            async with asyncio.timeout(self._timeout):
                while True:
                    try:
                        async with self._within(lease):
                            await connection(self._broker)
                            return await self._renew(lease)
                    except (BrokerUnavailable, BrokerRefused) as error:
                        trouble = error
                    await asyncio.sleep(next(delays))
        except TimeoutError:
            refused = self._refusal(lease) or trouble
            if isinstance(refused, BrokerRefused):
                raise refused from None
            raise Unconfirmed(lease, str(trouble or f"no answer within {self._timeout:g} s")) from None

    async def _renew(self, lease: Lease) -> None:
        if lease._over is not None:
            raise lease._over
        begun = bool(lease._life.current)
        if not begun:
            await self._begin(lease)
        lease._counter += 1
        await self._broker.store(BEATS, subjects.beat(lease.key, lease.term), encode(Heartbeat(lease._counter)), {})
        if begun:  # after the beat, so that it was stored while the life lasted
            await self._look(lease)

    async def _begin(self, lease: Lease) -> None:
        """Say Registered. What was sent and not acknowledged is looked for, and said again as the same life."""
        after = await self._look(lease)
        while not lease._life.current:
            lease._life = lease._life.attempting(lease.term)
            event: Registered = begin(Standing(description=lease.description), lease.term, self._by)
            try:
                sequence = await say(self._broker, lease.key, event, after)
            except Outrun as outrun:
                after = await self._act(lease, outrun.last)
            except (Unacknowledged, asyncio.CancelledError):
                lease._life = lease._life.doubtful()
                raise
            else:
                lease._life = lease._life.begun_at(lease.term, sequence)

    async def _end(self, lease: Lease, reason: str) -> None:
        if lease._over is not None:
            return
        after = await self._look(lease)
        while lease._life.current:
            event = Deregistered(id=new_id(), term=lease.term, by=self._by, reason=reason)
            try:
                await say(self._broker, lease.key, event, after)
                break
            except Outrun as outrun:
                after = await self._act(lease, outrun.last)
        lease._over = Expired(lease.key, lease.term, "deregistered", "it was deregistered")

    async def _look(self, lease: Lease) -> int:
        return await self._act(lease, await last_word(self._broker, lease.key))

    async def _act(self, lease: Lease, word: Word | None) -> int:
        """Learn what the last word means for the lease; its sequence. Raises Expired."""
        lease._life, last = lease._life.looked(word), word
        if word is not None and word == lease._last:
            return word.sequence
        word, decision = await understand(self._broker, lease.key, lease._life, word)
        match decision:
            case Continue(after=after):
                if not lease._life.current:
                    lease._life = lease._life.begun_at(lease.term, after)
                if last is not None and last.sequence == after:
                    lease._last = last
                return after
            case Register(after=after) if not lease._life.current and not _speaks_of(lease, word):
                return after
        lease._over = _end_of(lease, word, decision)
        raise lease._over

    @asynccontextmanager
    async def _within(self, lease: Lease) -> AsyncIterator[None]:
        """The time that the broker has to answer, and whatever it did not do in it as BrokerUnavailable."""
        try:
            async with asyncio.timeout(self._timeout):
                yield
        except TimeoutError:
            late = BrokerUnavailable(f"{lease.key}: no answer within {self._timeout:g} s")
            raise self._refusal(lease) or late from None
        except ReaderLost as error:
            raise BrokerUnavailable(f"{lease.key}: {error}") from None

    def _refusal(self, lease: Lease) -> BrokerRefused | None:
        """What the broker refused meanwhile: it tells of that aside, and else it looks as if it did not answer."""
        asked = subjects.event(lease.key), subjects.beat(lease.key, lease.term), f"$JS.API.STREAM.MSG.GET.{EVENTS}"
        refusals = filter(None, map(self._broker.refusal, asked))
        return next((BrokerRefused(f"{lease.key}: {refusal}") for refusal in refusals), None)


def _speaks_of(lease: Lease, word: Word | None) -> bool:
    return word is not None and word.event is not None and word.event.term == lease.term


def _end_of(lease: Lease, word: Word | None, decision: Decision) -> Expired:
    """Why a life is over whose last word that counts was this."""
    match decision:
        case Yield(by=by):
            return Expired(lease.key, lease.term, "superseded", f"a later registration has the id (term {by})")
        case Withdraw(by=operator, reason=reason):
            told = f"removed by operator {operator.name or '(unnamed)'}" + (f": {reason}" if reason else "")
            return Expired(lease.key, lease.term, "removed", told)
    if word is not None and _speaks_of(lease, word):
        if isinstance(word.event, ExpiredEvent):
            silent = f"expired: silent for {word.event.evidence.silent:.1f} s"
            return Expired(lease.key, lease.term, "expired", silent)
        return Expired(lease.key, lease.term, "deregistered", "it was deregistered")
    return Expired(lease.key, lease.term, "lost", "the log does not know it any more")
