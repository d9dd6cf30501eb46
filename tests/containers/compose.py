"""compose.yaml as a project of the test's own, driven as a person would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def compose_command() -> list[str] | None:
    """`docker compose` or `docker-compose`, whichever is there."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    return None


class Stack:
    """The services of compose.yaml under a project name."""

    def __init__(self, command: Sequence[str], project: str) -> None:
        self._command = [*command, "-p", project, "-f", str(ROOT / "compose.yaml")]
        self._environment = {**os.environ, "ADSUM_PORT": ""}  # a free port, so that no other stack is in the way

    def run(self, *arguments: str, limit: float = 240.0) -> str:
        """Run a command of Compose; its output."""
        done = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=limit, env=self._environment
        )
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def up(self) -> None:
        """Build, create and start everything."""
        self.run("up", "-d", "--build")

    def down(self) -> None:
        """Remove everything: containers, networks, volumes, the images that were built."""
        self.run("down", "-v", "--rmi", "local", "--remove-orphans")

    def log(self, service: str) -> str:
        """What a service has said so far."""
        return self.run("logs", "--no-color", service)

    def adsum(self, *arguments: str) -> object:
        """What `adsum … --json` says inside the stack."""
        return json.loads(self.run("exec", "-T", "watcher", "adsum", *arguments, "--json"))

    def container(self, service: str) -> str:
        """The id of a service's container."""
        return self.run("ps", "-q", service).strip()
