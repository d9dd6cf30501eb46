"""Where the broker is and how to be let in: the values, their rules, and the TLS context they make."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from urllib.parse import urlparse

import msgspec

from .errors import InvalidValue

__all__ = ["DEFAULT_URL", "BrokerSettings", "check_servers", "readable", "tls_context"]

DEFAULT_URL = "nats://127.0.0.1:4222"


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the broker is and how to be let in. Paths are files; `url` may list several, separated by commas."""

    url: str = DEFAULT_URL
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials: str | None = None
    nkey: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_hostname: str | None = None

    @property
    def servers(self) -> list[str]:
        """The URLs one by one."""
        return [server.strip() for server in self.url.split(",") if server.strip()]

    @property
    def shown(self) -> str:
        """The URLs as told to people: without user, password and token."""
        return ",".join(re.sub(r"//[^/]*@", "//", server) for server in self.servers)


def check_servers(settings: BrokerSettings) -> list[str]:
    """The servers of these settings. Raises InvalidValue if there is none, or one that is no URL of a broker."""
    if not settings.servers:
        raise InvalidValue("broker URL", settings.url, "must name at least one server", DEFAULT_URL)
    for server in settings.servers:
        if not server.startswith(("nats://", "tls://", "ws://", "wss://")):
            rule = "must begin with nats://, tls://, ws:// or wss://"
            raise InvalidValue("broker URL", server, rule, f"nats://{server.rsplit('//', 1)[-1]}")
        _check_port(server)
    return settings.servers


def _check_port(server: str) -> None:
    try:
        usable = urlparse(server).hostname and urlparse(server).port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidValue("broker URL", server, "must name a host and a port from 1 to 65535", DEFAULT_URL)


def tls_context(settings: BrokerSettings) -> ssl.SSLContext | None:
    """What TLS is to trust and to show; None where the settings ask for none. Raises InvalidValue for a bad file."""
    if not (settings.tls_ca or settings.tls_cert or any(url.startswith("tls://") for url in settings.servers)):
        return None
    context = ssl.create_default_context()
    if settings.tls_ca:
        authority = readable("tls_ca", settings.tls_ca)
        try:
            context.load_verify_locations(authority)
        except OSError as error:
            raise InvalidValue("tls_ca", authority, f"must hold certificates in PEM form: {error}") from None
    if settings.tls_cert:
        certificate = readable("tls_cert", settings.tls_cert)
        key = readable("tls_key", settings.tls_key) if settings.tls_key else None
        try:
            context.load_cert_chain(certificate, key)
        except OSError as error:
            raise InvalidValue("tls_cert", certificate, f"must be PEM, with its key in tls_key: {error}") from None
    return context


def readable(field: str, path: str) -> str:
    """Give `path` back if it is a file, else raise InvalidValue."""
    if not Path(path).is_file():
        raise InvalidValue(field, path, "must be a file that can be read")
    return path
