"""A nats-server with a configuration of the test's own: users, TLS, limits; to be killed, started again, reloaded."""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from adsum.projector.embedded import _binary, die_with_parent
from tests.cli.programs import free_port
from tests.waiting import until


class Server:
    """`config` is added to what lets it listen and store. The port stays the same over restarts."""

    def __init__(self, folder: Path, config: str = "", jetstream: bool = True) -> None:
        self.folder, self.config, self.jetstream = folder, config, jetstream
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None
        self._monitor = ""
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"nats://127.0.0.1:{self.port}"

    async def start(self) -> Server:
        """Start it and wait until it listens."""
        self._write()
        self._process = await asyncio.create_subprocess_exec(
            _binary(), "-c", str(self.folder / "conf"), preexec_fn=die_with_parent(signal.SIGKILL)
        )
        file = self.folder / f"nats-server_{self._process.pid}.ports"
        await until(lambda: file.exists() or self._process is None or self._process.returncode is not None)
        ports = msgspec.json.decode(await until(file.read_bytes), type=dict[str, list[str]])
        self._monitor = ports.get("monitoring", [""])[0]
        return self

    @property
    def pid(self) -> int:
        """Its process."""
        return self._running().pid

    async def monitor(self, page: str) -> dict[str, Any]:
        """What it tells of itself at /varz, /jsz or /connz; its `config` has to say `http: "127.0.0.1:-1"`."""

        def read() -> bytes:
            with urllib.request.urlopen(f"{self._monitor}/{page}", timeout=10) as answer:
                return bytes(answer.read())

        return dict(msgspec.json.decode(await asyncio.to_thread(read)))

    async def reload(self, config: str) -> None:
        """Let it read another configuration, without a restart."""
        self.config = config
        self._write()
        self._running().send_signal(signal.SIGHUP)

    async def kill(self, sent: signal.Signals = signal.SIGKILL) -> None:
        """End it: at once, or politely with SIGTERM."""
        self._running().send_signal(sent)
        await self._running().wait()
        self._process = None

    def pause(self) -> None:
        """Stop it where it stands (SIGSTOP)."""
        self._running().send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End it if it runs."""
        if self._process is not None and self._process.returncode is None:
            self.go_on()
            await self.kill()

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "the server does not run"
        return self._process

    def _write(self) -> None:
        store = f'jetstream {{ store_dir: "{self.folder / "store"}" }}' if self.jetstream else ""
        (self.folder / "conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\nports_file_dir: "{self.folder}"\nlog_file: "{self.folder / "log"}"\n'
            f"{store}\n{self.config}\n"
        )
