"""Removing the beginning of the log, once it lies in an export file; nothing but what the file holds goes.

The log refuses deletes and purges, also those of operators. What it keeps to is a limit of messages, and that counts
all of them: whatever arrived meanwhile would push out one more that no file holds. So for the few milliseconds of a
trim the stream listens elsewhere: publishes wait as in an outage, and the count is exact. The note `trimming` says so;
the note `trimmed` is written in the very step that removes. Whoever is killed in between leaves a log that takes
nothing and has lost nothing, and `finish` sets it right.

In a cluster each copy keeps to the limit by itself, and hears of a change of settings apart from what is stored: one
that is slow could store what comes afterwards while it still has the limit. So nothing is taken before every copy is
known to have lifted it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, PeerInfo, StreamInfo

from . import subjects
from .altering import look_at_consumer
from .broker import Broker, WrongLastSequence
from .errors import AdsumError, BrokerRefused, BrokerUnavailable, StreamMissing
from .exporting import Exported
from .importing import whoever
from .notes import Notes, notes_of
from .streams import EVENTS, note

__all__ = ["CannotTrim", "TrimUnfinished", "finish", "trim"]

ASIDE = "adsum.trim"
"""What the stream listens to meanwhile, instead of the log's subjects."""
APPLIED_WITHIN = 10.0
_REMEDY = "the log takes nothing before they do; then run `adsum trim --finish`"
_NEVER = str((1 << 62) - 1)


class CannotTrim(AdsumError):
    """The log cannot be trimmed as things are; it still holds everything."""


class TrimUnfinished(AdsumError):
    """The log takes nothing yet; it has lost nothing."""


async def trim(broker: Broker, exported: Exported) -> None:
    """Remove from the log what the file holds: everything up to its last sequence.

    Raises CannotTrim, TrimUnfinished, BrokerUnavailable, BrokerRefused. Whatever happens the log is whole, or begins
    after the file.
    """
    header, trailer = exported
    notes = _unchanged(await _look(broker), header.epoch, header.first - 1)
    began = notes._replace(trimming=whoever())
    trimmed = began._replace(trimmed=trailer.last, trimmed_head=bytes.fromhex(trailer.head))
    try:
        await note(broker, began, notes, subjects=[ASIDE])
        info = await _at_rest(broker)
        kept = await _after(broker, trailer.last)
        _check(info, exported, kept)
        await note(broker, trimmed, began, max_msgs=kept)
        await _removed(broker, trailer.last, kept)
    finally:
        if notes_of(await _look(broker)) in (began, trimmed):  # and not another command at work
            await finish(broker)


async def finish(broker: Broker) -> Notes:
    """Let the log take events again; the notes that it bears now. Also after a trim that was cut off.

    Raises TrimUnfinished where not every copy of the log is there to hear of it.
    """
    notes = notes_of(await _look(broker))
    await note(broker, notes, max_msgs=-1)
    await _heeded(broker)
    done = notes._replace(trimming="")
    await note(broker, done, notes, subjects=[subjects.ALL_EVENTS])
    return done


async def _look(broker: Broker) -> StreamInfo:
    info = await broker.stream_info(EVENTS)
    if info is None:
        raise StreamMissing(f"stream {EVENTS} does not exist")
    return info


def _unchanged(info: StreamInfo, epoch: str, trimmed: int) -> Notes:
    notes = notes_of(info)
    if (notes.epoch, notes.trimmed) != (epoch, trimmed) or notes.trimming:
        raise CannotTrim("the log is not the one that was exported any more: another one, or trimmed meanwhile")
    away = [str(peer.name) for peer in _copies(info) if peer.offline]
    if away:
        raise CannotTrim(f"a copy of the log is away ({', '.join(away)}): wait until it is there")
    return notes


def _copies(info: StreamInfo) -> list[PeerInfo]:
    return (info.cluster.replicas if info.cluster is not None else None) or []


async def _at_rest(broker: Broker) -> StreamInfo:
    """The stream once all that reached it before it listened elsewhere is stored, in every copy.

    A publish that can only be refused goes the way of all others; the refusal tells the last sequence given out.
    """
    try:
        await broker.store(EVENTS, ASIDE, b"", {"Nats-Expected-Last-Sequence": _NEVER})
        raise CannotTrim("the broker does not heed conditions")
    except WrongLastSequence as refusal:
        told = re.search(r"wrong last sequence: (\d+)", str(refusal))
        last = int(told[1]) if told else 0

    def stored(info: StreamInfo) -> bool:
        return info.state.last_seq >= last and all(peer.current for peer in _copies(info))

    return await _until(broker, stored, f"not every copy of the log got to {last}")


async def _after(broker: Broker, last: int) -> int:
    """How many messages the log holds after a sequence."""
    following = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=last + 1,
        ack_policy=AckPolicy.NONE,
        mem_storage=True,
        num_replicas=1,
    )
    found = await broker.create_consumer(EVENTS, following)
    await broker.delete_consumer(EVENTS, str(found.name))
    return found.num_pending or 0


def _check(info: StreamInfo, exported: Exported, kept: int) -> None:
    """Whether removing all but `kept` messages removes just those of the file. It begins where the log begins."""
    header, trailer = exported
    if info.state.first_seq < header.first or kept < 1 or info.state.messages - kept != trailer.messages:
        raise CannotTrim(
            f"the log holds {info.state.messages} messages from {info.state.first_seq} to {info.state.last_seq}, "
            f"the file {trailer.messages} from {header.first} to {trailer.last}: nothing is removed"
        )


async def _removed(broker: Broker, last: int, kept: int) -> None:
    """Wait until the broker has removed what was to go."""
    info = await _until(broker, lambda info: info.state.messages <= kept, f"the log was not trimmed to {last}")
    if info.state.first_seq <= last or info.state.messages != kept:
        raise AdsumError(f"the broker kept {info.state.messages} messages from {info.state.first_seq}, wanted {kept}")


async def _heeded(broker: Broker) -> None:
    """Wait until every copy of the log has heeded what was changed before.

    The servers hear of changes in the order in which they were made, and in the same way of a new consumer: where
    that is, the change is too.
    """
    copies = (await _look(broker)).config.num_replicas or 1
    if copies == 1:
        return
    everywhere = ConsumerConfig(
        deliver_policy=DeliverPolicy.NEW,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=2 * APPLIED_WITHIN,
        mem_storage=True,
        num_replicas=copies,
    )
    deadline, name, missing = time.monotonic() + APPLIED_WITHIN, "", "some"
    while True:
        try:
            name = name or str((await broker.create_consumer(EVENTS, everywhere)).name)
            found = await look_at_consumer(broker, EVENTS, name)
            peers = (found.cluster.replicas if found.cluster is not None else None) or []
            away = [str(peer.name) for peer in peers if peer.offline or not peer.current]
            if len(peers) == copies - 1 and not away:
                break
            missing = ", ".join(away) or missing
        except (BrokerUnavailable, BrokerRefused) as error:  # its leader is elected first
            missing = str(error)
        if time.monotonic() > deadline:
            raise TrimUnfinished(f"not every copy of the log answers ({missing}): {_REMEDY}")
        await asyncio.sleep(0.05)
    await broker.delete_consumer(EVENTS, name)


async def _until(broker: Broker, holds: Callable[[StreamInfo], bool], otherwise: str) -> StreamInfo:
    deadline = time.monotonic() + APPLIED_WITHIN
    while not holds(info := await _look(broker)):
        if time.monotonic() > deadline:
            raise CannotTrim(f"{otherwise} within {APPLIED_WITHIN:g} s")
        await asyncio.sleep(0.02)
    return info
