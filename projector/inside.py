"""adsumd inside of a process that does other things too: broker, projector and roles in one program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from adsum.events.config import Config, load_config
from adsum.events.description import split_address
from adsum.events.settings import BrokerSettings

from .daemon import Options, Ready, check_replicas, serve
from .errors import first_error

__all__ = ["adsumd"]


@asynccontextmanager
async def adsumd(
    config: str | Path | Config | None = None,
    *,
    data: str | Path = ".adsum",
    listen: str = "127.0.0.1:4222",
    replicas: int = 1,
) -> AsyncIterator[Config]:
    """An adsumd for as long as the block runs; the block begins once it follows the log.

        async with adsumd("adsum.toml") as config, bootstrap(config, "querier", address=…) as me: …

    Gives the configuration with which others join it. Where that names no broker one is embedded, which listens at
    `listen` (port 0: a free one) for this process and for others, and keeps everything in `data`. `replicas`: copies of
    each stream, where the broker is a cluster. Should it have to end by itself, the block is cancelled.
    Raises Refusal and AdsumError as the program `adsumd` does, InvalidValue.
    """
    config = load_config(config) if isinstance(config, str | Path) else config or Config()
    host, port = split_address("listen", listen)
    options = Options(
        data=Path(data),
        host=host,
        port=port,
        nats=config.nats,
        replicas=check_replicas("replicas", replicas, config.nats),
        dsn=config.dsn,
        probes=config.probes,
    )
    started: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
    own: Exception | None = None

    def tell(ready: Ready) -> None:
        if not started.done():
            started.set_result(ready)

    try:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(serve(options, tell), name="adsumd")
            ready = await started
            try:
                yield config if config.nats is not None else replace(config, nats=BrokerSettings(url=ready.nats))
            except Exception as error:  # noqa: BLE001  # raised again below, outside of the group
                own = error
            serving.cancel()
    except BaseExceptionGroup as failed:
        raise first_error(failed) from own
    if own is not None:
        raise own
