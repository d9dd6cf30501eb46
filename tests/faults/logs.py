"""Making a log another one, as an import does: its messages are said anew in a stream of another epoch."""

from __future__ import annotations

from adsum.events.broker import Broker
from adsum.events.ids import new_epoch
from adsum.events.reader import Message, StreamReader
from adsum.events.streams import EVENTS, definitions, read_epoch

__all__ = ["become_another_log", "words"]


async def words(broker: Broker) -> list[Message]:
    """Everything in the log."""
    found: list[Message] = []
    async with StreamReader(broker, EVENTS) as reader:
        while batch := await reader.to_end():
            found += batch
    return found


async def become_another_log(broker: Broker, backup: list[Message]) -> str:
    """The log holds this from now on, at sequences from 1, under an epoch above the one it had; the new epoch."""
    epoch = new_epoch([await read_epoch(broker)])
    await broker._js.delete_stream(EVENTS)
    log = next(config for config in definitions() if config.name == EVENTS)
    log.metadata = {"adsum-epoch": epoch}
    await broker.create_stream(log)
    for message in backup:
        await broker.store(EVENTS, message.subject, message.data, {})
    return epoch
