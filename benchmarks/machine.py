"""On what it was measured: the machine, the versions, the day."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime

import psutil

from .peers import KINDS, version

__all__ = ["Machine", "lift_limits", "machine", "versions"]

Machine = dict[str, str | int | float]


def machine() -> Machine:
    """What of it bears on the figures."""
    return {
        "cores": os.cpu_count() or 0,
        "memory_gb": round(psutil.virtual_memory().total / 1e9),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": _commit(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_before": round(os.getloadavg()[0], 2),
    }


def lift_limits() -> None:
    """Let this process and its children open as many files as they may: a connection is one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def versions(kinds: Iterable[str]) -> dict[str, str]:
    """Of the systems behind these kinds, or why one is absent."""
    systems = {KINDS[kind].module: kind for kind in kinds if kind in KINDS}
    return {module: version(kind) for module, kind in systems.items()}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as told:
            names = [line.partition(":")[2].strip() for line in told if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def _commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "unknown"
