"""Certificates that sign themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["certificate", "read"]


def certificate(folder: Path, name: str, *more: str) -> tuple[str, str]:
    """(certificate, private key), files of one for `name`; `more`: options of `openssl req`."""
    made, key = str(folder / "cert.pem"), str(folder / "key.pem")
    kind = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    files = ("-subj", f"/CN={name}", "-keyout", key, "-out", made)
    subprocess.run(["openssl", *kind, *files, *more], check=True, capture_output=True)
    return made, key


def read(*files: str) -> list[bytes]:
    """What is in them."""
    return [Path(file).read_bytes() for file in files]
