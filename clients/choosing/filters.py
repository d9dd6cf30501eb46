"""Which instances a selection looks at, and at which endpoint of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from adsum.events.description import Endpoint
from adsum.events.errors import InvalidValue
from adsum.events.signals import Instance

from .versions import VersionRange

__all__ = ["Filters"]


class Filters:
    """None is no filter. The endpoint is the first with the name and the protocol that are wanted."""

    __slots__ = ("_endpoint", "_metadata", "_protocol", "_version", "_zone")

    def __init__(
        self,
        *,
        zone: str | None = None,
        version: str | None = None,
        metadata: Mapping[str, str] | None = None,
        endpoint: str | None = None,
        protocol: str | None = None,
    ) -> None:
        self._zone, self._endpoint, self._protocol = zone, endpoint, protocol
        self._version = VersionRange(version) if version is not None else None
        if not isinstance(metadata, Mapping | None):
            raise InvalidValue("metadata", metadata, "must be a mapping of texts to texts")
        self._metadata = dict(metadata or {}).items()

    def look(self, instance: Instance) -> Endpoint | str:
        """The endpoint to call; or what the instance is not, in words that follow a number of instances."""
        if self._zone is not None and instance.zone != self._zone:
            return f"not in zone {self._zone!r}"
        if self._version is not None and not self._version.takes(instance.version):
            return f"not of version {self._version.text!r}"
        if not self._metadata <= instance.metadata.items():
            return f"without metadata {dict(self._metadata)!r}"
        for endpoint in instance.endpoints:
            if self._endpoint in (None, endpoint.name) and self._protocol in (None, endpoint.protocol):
                return endpoint
        wanted = [f"name {self._endpoint!r}"] if self._endpoint is not None else []
        wanted += [f"protocol {self._protocol!r}"] if self._protocol is not None else []
        return f"without an endpoint of {' and '.join(wanted)}"
