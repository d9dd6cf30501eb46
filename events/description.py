"""What an instance says of itself, and the rules it must keep to. Checked once, where it is written."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterable, Mapping

import msgspec

from .durations import format_duration
from .errors import InvalidValue
from .names import check_capability, check_label, check_text

__all__ = [
    "DEFAULT_HEARTBEAT",
    "DEFAULT_PROTOCOL",
    "DEFAULT_TTL",
    "FLIGHT_ACTION",
    "GRPC_HEALTH",
    "MAX_METADATA",
    "MAX_REASON",
    "MAX_TTL",
    "Description",
    "Endpoint",
    "check_host",
    "check_lease",
    "describe",
    "health_path",
    "split_address",
]

DEFAULT_HEARTBEAT = 5.0
"""Seconds between two heartbeats."""
DEFAULT_PROTOCOL = "http"
"""What an endpoint speaks of which only an address is given."""
DEFAULT_TTL = 15.0
"""Seconds of silence after which an instance is stale; after twice as many it is gone."""
MAX_TTL = 1500.0
"""Seconds. Twice this stays below the age at which the broker drops a heartbeat (`streams.BEATS_MAX_AGE`)."""
FLIGHT_ACTION = "/arrow.flight.protocol.FlightService/DoAction"
"""The `health_path` of an endpoint that is asked by an action of Arrow Flight who it is."""
GRPC_HEALTH = "/grpc.health.v1.Health/Check"
"""The `health_path` of an endpoint that is asked over gRPC how it is."""
MIN_HEARTBEAT = 0.1
MAX_METADATA = 4096
"""Bytes of the metadata, encoded as JSON."""
MAX_REASON = 4096
"""Characters of what is said as the reason for something."""
MAX_CAPABILITIES = 64
MAX_ENDPOINTS = 16
MAX_TEXT = 128

_PATH = re.compile(r"/[!-~]*")
_PORT = re.compile(r"[0-9]{1,5}")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_PROTOCOL = re.compile(r"[a-z][a-z0-9+.-]{0,31}")
_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a process listens. `host` is a name or an address; IPv6 is kept in its short form, without brackets."""

    name: str = "main"
    host: str
    port: int
    protocol: str = "tcp"

    @property
    def address(self) -> str:
        """host:port, with the brackets that an IPv6 host needs there."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Description(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an instance says of itself. Make one with `describe`, which checks it."""

    endpoints: tuple[Endpoint, ...]
    capabilities: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    version: str = ""
    zone: str = ""
    weight: float = 1.0
    heartbeat: float = DEFAULT_HEARTBEAT
    ttl: float = DEFAULT_TTL


def health_path(metadata: Mapping[str, str], endpoint: str) -> str:
    """The path at which this endpoint says how it is, over HTTP or as a method of gRPC: its `health.<name of the
    endpoint>` in the metadata.

    "" where none is declared, or none that can be asked for.
    """
    path = metadata.get(f"health.{endpoint}", "")
    return path if _PATH.fullmatch(path) else ""


def describe(
    endpoints: Iterable[Endpoint],
    *,
    capabilities: Iterable[str] = (),
    metadata: Mapping[str, str] | None = None,
    version: str = "",
    zone: str = "",
    weight: float = 1.0,
    heartbeat: float = DEFAULT_HEARTBEAT,
    ttl: float = DEFAULT_TTL,
) -> Description:
    """A checked Description. Raises InvalidValue, naming the value and the rule, for whatever breaks one."""
    if isinstance(capabilities, str):
        raise InvalidValue("capabilities", capabilities, "must be a list of names, not one text")
    checked = Description(
        endpoints=_check_endpoints(endpoints),
        capabilities=tuple(sorted({check_capability(capability) for capability in capabilities})),
        metadata=_check_metadata(metadata or {}),
        version=check_text("version", version, MAX_TEXT),
        zone=check_text("zone", zone, MAX_TEXT),
        weight=_check_weight(weight),
        heartbeat=_check_seconds("heartbeat", heartbeat),
        ttl=_check_seconds("ttl", ttl),
    )
    if len(checked.capabilities) > MAX_CAPABILITIES:
        raise InvalidValue("capabilities", len(checked.capabilities), f"at most {MAX_CAPABILITIES} are allowed")
    for endpoint in checked.endpoints:
        name = f"health.{endpoint.name}"
        if name in checked.metadata and not health_path(checked.metadata, endpoint.name):
            rule = "must be the path of an HTTP request, beginning with '/' and without spaces"
            raise InvalidValue(f"metadata {name!r}", checked.metadata[name], rule, "/health")
    check_lease(checked.heartbeat, checked.ttl)
    return checked


def split_address(field: str, text: str) -> tuple[str, int]:
    """("10.0.0.7", 8080) of "10.0.0.7:8080"; an IPv6 host stands in brackets. The host may be empty.

    Raises InvalidValue. Whether others can connect to it is for `describe` to check.
    """
    host, separator, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not separator or not _PORT.fullmatch(port) or (":" in host and bare == host):
        raise InvalidValue(field, text, "must be HOST:PORT, an IPv6 host in brackets", "10.0.0.7:8080")
    return bare, int(port)


def _check_endpoints(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    checked = tuple(_check_endpoint(endpoint) for endpoint in endpoints)
    if not 1 <= len(checked) <= MAX_ENDPOINTS:
        raise InvalidValue("endpoints", len(checked), f"an instance has 1 to {MAX_ENDPOINTS} endpoints")
    names = [endpoint.name for endpoint in checked]
    for name in names:
        if names.count(name) > 1:
            raise InvalidValue("endpoint name", name, "each endpoint of an instance needs a name of its own")
    return checked


def _check_endpoint(endpoint: Endpoint) -> Endpoint:
    port = endpoint.port
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise InvalidValue("port", port, "must be a whole number from 1 to 65535")
    if not isinstance(endpoint.protocol, str) or not _PROTOCOL.fullmatch(endpoint.protocol):
        rule = "must be 1 to 32 of a-z, 0-9, '+', '.' and '-', beginning with a letter, such as 'http' or 'grpc'"
        raise InvalidValue("protocol", endpoint.protocol, rule)
    return Endpoint(
        name=check_label("endpoint name", endpoint.name),
        host=check_host(endpoint.host),
        port=port,
        protocol=endpoint.protocol,
    )


def check_host(host: str) -> str:
    """A host that others can connect to: a name, an IPv4 or an IPv6 address in any usual spelling.

    IPv6 comes back in its short form without brackets (RFC 5952), an IPv4 address inside it as IPv4. The wildcard
    addresses are refused: a listener can bind to them, nobody can connect to them. So is a zone ("fe80::1%eth0"): it
    means something on one machine only (RFC 4007, section 6).
    """
    bare = check_text("host", host, 253).strip()
    if bare.startswith("[") and bare.endswith("]"):
        bare = bare[1:-1]
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return _check_host_name(host, bare)
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_unspecified:
        rule = "is a wildcard to listen on, nobody can connect to it; name the address that others reach"
        raise InvalidValue("host", host, rule)
    if getattr(address, "scope_id", None) is not None:
        raise InvalidValue("host", host, "names a zone of this machine, which others do not have", bare.split("%")[0])
    if address.is_multicast:
        raise InvalidValue("host", host, "is a multicast address, nobody can connect to it")
    return str(address)


def _check_host_name(host: str, bare: str) -> str:
    labels = bare.removesuffix(".").split(".")
    if not all(_HOST_LABEL.fullmatch(label) for label in labels) or all(_NUMBER.fullmatch(label) for label in labels):
        raise InvalidValue("host", host, "must be a host name, an IPv4 or an IPv6 address, without scheme or port")
    return bare.lower()


def _check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    checked = {}
    for key, value in metadata.items():
        if not key:
            raise InvalidValue("metadata key", key, "must not be empty")
        checked[check_text("metadata key", key, MAX_TEXT)] = check_text(f"metadata {key!r}", value, MAX_METADATA)
    size = len(msgspec.json.encode(checked))
    if size > MAX_METADATA:
        raise InvalidValue("metadata", f"{size} bytes", f"must be at most {MAX_METADATA} bytes as JSON")
    return checked


def _check_weight(weight: float) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise InvalidValue("weight", weight, "must be a number")
    if not _finite(weight) or weight < 0:
        raise InvalidValue("weight", weight, "must be zero or more and finite (zero is never picked)")
    return float(weight)


def _check_seconds(field: str, seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not _finite(seconds) or seconds <= 0:
        raise InvalidValue(field, seconds, "must be a positive number of seconds")
    return float(seconds)


def _finite(number: float) -> bool:
    return -sys.float_info.max <= number <= sys.float_info.max  # unlike math.isfinite, of any whole number too


def check_lease(heartbeat: float, ttl: float) -> None:
    """Raise InvalidValue unless a TTL and a heartbeat (seconds) go together, and both with what the broker keeps."""
    if heartbeat < MIN_HEARTBEAT:
        raise InvalidValue("heartbeat", format_duration(heartbeat), f"must be at least {MIN_HEARTBEAT} seconds")
    if ttl < 2 * heartbeat:
        rule = f"must be at least two heartbeats ({format_duration(2 * heartbeat)}), or one late beat makes it stale"
        raise InvalidValue("ttl", format_duration(ttl), rule)
    if ttl > MAX_TTL:
        rule = (
            f"must be at most {format_duration(MAX_TTL)}: the broker keeps a heartbeat for little more than twice that"
        )
        raise InvalidValue("ttl", format_duration(ttl), rule)
