"""Programs of Debian packages, without installing them: on the PATH, or unpacked into the benchmark's cache.

    python -m benchmarks fetch

asks apt-get for the packages and unpacks them (`dpkg -x`) into a folder below the temporary one. No other place of the
machine is touched. Where there is no apt-get, run the benchmark in a container of Debian, or install the servers.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["ROOT", "fetch", "jars", "program"]

CACHE = Path(tempfile.gettempdir()) / "adsum-benchmarks"
ROOT = CACHE / "root"
PACKAGES = ("redis-server", "zookeeper", "default-jre-headless")
REMEDY = "install it, or `python -m benchmarks fetch` (needs apt-get; a container of Debian will do)"


def program(name: str) -> str | None:
    """Where a program is."""
    found = shutil.which(name)
    if found:
        return found
    unpacked = [ROOT / "usr" / "bin" / name, *(ROOT / "usr" / "lib" / "jvm").glob(f"*/bin/{name}")]
    return next((str(path) for path in unpacked if path.is_file()), None)


def jars(*names: str) -> list[str]:
    """Where these Java archives are, without those that are nowhere; `netty-*.jar` means all of them."""
    folders = [ROOT / "usr/share/java", Path("/usr/share/java")]
    return [str(path) for name in names for folder in folders for path in sorted(folder.glob(name))]


def fetch() -> None:
    """Download and unpack. Raises CalledProcessError with apt-get's own words on stderr."""
    archives = CACHE / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", "--no-install-recommends"]
    subprocess.run(["apt-get", "-y", "-q", "--download-only", *options, "install", *PACKAGES], check=True)
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(archive), str(ROOT)], check=True)
