"""What every contender registers: the same instances, as the same bytes where a peer keeps bytes (about 400 each)."""

from __future__ import annotations

from adsum.events.codec import decode_topology, encode
from adsum.events.description import Description, Endpoint, describe
from adsum.events.names import Key
from adsum.events.signals import Instance

__all__ = ["SERVICE", "described", "id_of", "key_of", "read", "value"]

SERVICE = "fleet"


def id_of(number: int) -> str:
    """The id of an instance."""
    return f"i{number}"


def key_of(number: int, service: str = SERVICE) -> Key:
    """The key of an instance in adsum."""
    return Key("default", service, id_of(number))


def described(number: int, heartbeat: float = 5, ttl: float = 15, version: str = "2.14.3") -> Description:
    """What an instance says of itself."""
    return describe(
        [Endpoint(host=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", port=20000, protocol="grpc")],
        capabilities=("payments", "refunds"),
        metadata={"commit": "9f2c1d7e5b8a4c3f", "owner": "team-platform", "pod": f"orders-7f9c4-{number}"},
        version=version,
        zone="abc"[number % 3],
        heartbeat=heartbeat,
        ttl=ttl,
    )


def value(number: int, ttl: float = 15, version: str = "2.14.3") -> bytes:
    """What a peer stores of an instance: the bytes of a message of adsum's topology."""
    said = described(number, ttl / 3, ttl, version)
    return encode(
        Instance(
            epoch="01993d2e-7f11-7e3a-8d0e-6a1f0c9b2d11",
            revision=number + 1,
            namespace="default",
            service=SERVICE,
            id=id_of(number),
            term="01993d2e-7f11-7e3a-8d0e-6a1f0c9b2d11",
            registered_at=1764460800.0,
            **{name: getattr(said, name) for name in said.__struct_fields__},
        )
    )


def read(data: bytes) -> Instance:
    """Decoded, as adsum's own cache decodes."""
    told = decode_topology(data)
    assert isinstance(told, Instance)
    return told
