"""`adsum drain` and `adsum deregister`: what an operator says of an instance, whoever owns it."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable
from typing import NamedTuple

import click

from adsum.events import subjects
from adsum.events.broker import Broker
from adsum.events.codec import decode_topology
from adsum.events.errors import Unacknowledged, Undecodable
from adsum.events.ids import new_id
from adsum.events.lifecycle import Author, Deregistered, Event, Expired, Mode, ModeChanged
from adsum.events.log import Outrun, Word, last_word, say
from adsum.events.names import Key, check_label, check_text
from adsum.events.streams import TOPOLOGY, read_epoch

from .near import near, near_ids
from .options import Where, broker_options, pass_where
from .output import SHORTENED, note
from .session import Failed, reading, run
from .snapshot import snapshot

__all__ = ["Gone", "deregister", "drain", "operator"]

TRIES = 8
MAX_REASON = 200

reason_option = click.option("--reason", metavar="TEXT", default="", help="Kept in the log with the event.")


class Gone(NamedTuple):
    """Nothing to say: this is so already, and here is how it is told."""

    told: str


@click.command(short_help="Remove an instance; its owner stays away.")
@click.argument("service")
@click.argument("id")
@reason_option
@broker_options
@pass_where
def deregister(where: Where, service: str, id: str, reason: str) -> None:
    """Remove the instance ID of SERVICE from the registry.

    Its process is told and does not register again by itself; it is not stopped. A new start registers as usual.
    One that is gone already is left as it is, which is no error.

    \b
    Example:
      adsum deregister orders 0198c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10 --reason "wrong build"
    """
    key = _key(where, service, id)
    check_text("reason", reason, MAX_REASON)

    def decide(word: Word, term: str) -> Event | Gone:
        if isinstance(word.event, Deregistered):
            return Gone(f"was deregistered already, by {_who(word.event.by)}")
        return Deregistered(id=new_id(), term=term, by=operator(), reason=reason)

    note(run(_speak(where, key, decide, "deregistered")))


@click.command(short_help="Take an instance out of use, so that it can be stopped.")
@click.argument("service")
@click.argument("id")
@click.option("--undo", is_flag=True, help="Let it serve again.")
@reason_option
@broker_options
@pass_where
def drain(where: Where, service: str, id: str, undo: bool, reason: str) -> None:
    """Set the instance ID of SERVICE to draining: it stays registered, and nobody sends it new work.

    \b
    Examples:
      adsum drain orders 0198c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10 --reason "kernel update"
      adsum drain orders 0198c5b2-7c1e-7d3a-9b3f-2f6f6f1d9a10 --undo
    """
    key = _key(where, service, id)
    check_text("reason", reason, MAX_REASON)
    mode: Mode = "serving" if undo else "draining"

    def decide(word: Word, term: str) -> Event | Gone:
        if isinstance(word.event, Deregistered | Expired):
            raise Failed(f"{key} is gone: the last word on it is {_type(word.event)}")
        return ModeChanged(id=new_id(), term=term, by=operator(), mode=mode, reason=reason)

    note(run(_speak(where, key, decide, mode)))


def _who(by: Author) -> str:
    if by.kind != "operator":
        return f"its {by.kind}"
    return f"an operator ({by.name})" if by.name else "an operator"


def operator() -> Author:
    """Who sits at this terminal: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return Author("operator", f"{user}@{socket.gethostname()}")


def _key(where: Where, service: str, id: str) -> Key:
    if SHORTENED not in id:  # as tables shorten it: no id, but one can be suggested
        check_label("instance id", id)
    return Key(where.namespace, check_label("service", service), id)


async def _speak(where: Where, key: Key, decide: Callable[[Word, str], Event | Gone], done: str) -> str:
    """Say what `decide` makes of the last word; look and decide anew when somebody else spoke first."""
    async with reading(where) as broker:
        await read_epoch(broker)
        word = await last_word(broker, key) if SHORTENED not in key.id else None
        for _ in range(TRIES):
            if word is None:
                raise Failed(await _unknown(broker, key))
            event = decide(word, await _term(broker, key, word))
            if isinstance(event, Gone):
                return f"{key} {event.told}"
            try:
                sequence = await say(broker, key, event, word.sequence)
            except Outrun as outrun:
                word = outrun.last
            except Unacknowledged:
                word = await last_word(broker, key)
                if word is not None and word.event is not None and word.event.id == event.id:
                    return f"{key} {done} (sequence {word.sequence})"
            else:
                return f"{key} {done} (sequence {sequence})"
    raise Failed(f"{key}: {TRIES} times somebody else spoke first; try again")


async def _term(broker: Broker, key: Key, word: Word) -> str:
    """The life that the last word speaks of; where that cannot be read, the one that the projector tells of."""
    if word.event is not None:
        return word.event.term
    raw = await broker.last_message(TOPOLOGY, subjects.topology(key))
    try:
        return decode_topology(raw.data or b"").term if raw is not None else _unreadable(key)
    except Undecodable:
        return _unreadable(key)


def _unreadable(key: Key) -> str:
    raise Failed(f"{key}: neither its last event nor its state can be read")


async def _unknown(broker: Broker, key: Key) -> str:
    there = await snapshot(broker, key.namespace)
    ids = [one.id for one in there if one.service == key.service]
    if ids:
        return f"there is no instance {key.id} of {key.service} in namespace {key.namespace}{near_ids(key.id, ids)}"
    hint = near(key.service, (one.service for one in there))
    return f"there is no service {key.service} in namespace {key.namespace}{hint}"


def _type(event: Event) -> str:
    return str(event.__struct_config__.tag)
