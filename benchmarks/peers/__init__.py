"""The systems that are compared: for each kind of contender which module runs it and with what options.

Such a module has `missing()` (why it cannot be had here, or None), `version()`, `running(folder, **options)` (a context
manager that gives a Server) and `Client` (see `client`). It imports its client library when it is used, not before, so
that a system which is not there can be named as absent.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from .client import Absent, Client
from .serving import Server

__all__ = ["KINDS", "Absent", "Client", "Kind", "Server", "client_of", "running", "version"]


class Kind(NamedTuple):
    """A system in one of its manners. `note`: how it is used, and in what that differs from adsum."""

    module: str
    note: str
    server: Mapping[str, Any] = {}
    client: Mapping[str, Any] = {}


KINDS = {
    "adsum": Kind(
        "adsum",
        "one adsumd, broker embedded, SQLite: every event on disk when acknowledged, then folded into the catalog with "
        "its history, then told",
    ),
    "adsum-postgres": Kind("adsum", "as adsum, the catalog in PostgreSQL", server={"postgres": True}),
    "adsum-flush": Kind("adsum", "as adsum, the broker with its default flush (every two minutes)", {"sync": False}),
    "adsum-register": Kind("adsum", "as adsum, each a `registry.register(...)` block that beats", {}, {"blocks": True}),
    "adsum-many": Kind("adsum", "as adsum, through `register_many` on atomic batches", {}, {"many": True}),
    "etcd": Kind("etcd", "a lease and a key an instance, fsync before the answer; one gRPC watch a cache"),
    "etcd-channels": Kind("etcd", "as etcd, over 4 connections", {}, {"channels": 4}),
    "zookeeper": Kind("zookeeper", "an ephemeral node an instance, fsync before the answer; kazoo's ChildrenWatch"),
    "zookeeper-raw": Kind("zookeeper_raw", "as zookeeper, the client straight on the protocol"),
    "redis-poll": Kind("redis", "SET with PX; AOF flushed each second; all keys read anew every second"),
    "redis-notify": Kind(
        "redis", "as redis-poll, but told by keyspace notifications, which may be lost", {}, {"notified": True}
    ),
    "redis-always": Kind(
        "redis", "as redis-notify, AOF flushed before the answer", {"fsync": "always"}, {"notified": True}
    ),
    "sqlite": Kind("sqlite", "a table with the last heartbeat, synchronous=FULL; read anew every second"),
    "postgres": Kind("postgres", "a table with the last heartbeat, default settings; read anew every second"),
}


def running(kind: str, folder: Path) -> AbstractAsyncContextManager[Server]:
    """The server of this kind, for as long as the block runs, with its data in `folder`. Raises Absent."""
    module = _module(kind)
    reason = module.missing()
    if reason:
        raise Absent(reason)
    folder.mkdir(parents=True, exist_ok=True)
    started: AbstractAsyncContextManager[Server] = module.running(folder, **KINDS[kind].server)
    return started


def client_of(kind: str, address: str, **options: Any) -> Client:
    """A client of a server that runs; to be entered."""
    made: Client = _module(kind).Client(address, **(dict(KINDS[kind].client) | options))
    return made


def version(kind: str) -> str:
    """Of server and client, as far as they can be had."""
    module = _module(kind)
    reason = module.missing()
    return f"absent: {reason}" if reason else str(module.version())


def _module(kind: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{KINDS[kind].module}")
