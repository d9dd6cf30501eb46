"""The roles of a configuration file: what each says of itself when it joins, unless the one who joins says otherwise.

[roles.querier]
capabilities = ["QueryExecution"]         # and metadata, protocol, version, weight, zone
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from .description import DEFAULT_PROTOCOL, Endpoint, describe
from .errors import InvalidValue
from .names import check_known, check_label

__all__ = ["Role", "check_roles", "role_of"]


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance of a role says of itself."""

    capabilities: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    protocol: str = DEFAULT_PROTOCOL
    version: str = ""
    weight: float = 1.0
    zone: str = ""


def check_roles(table: object) -> dict[str, Role]:
    """The roles that a table means, by name. Raises InvalidValue, naming the role, the key, the value and the rule."""
    if not isinstance(table, dict):
        raise InvalidValue("section", "roles", "must be a table of tables, one a role, written [roles.NAME]")
    return {check_label("role", name): _check_role(name, said) for name, said in table.items()}


def role_of(roles: Mapping[str, Role], name: str) -> Role:
    """What a role says of itself. Raises InvalidValue where roles are listed and it is not among them.

    Where none are listed any name will do, and says nothing.
    """
    check_label("role", name)
    if not roles:
        return Role()
    check_known("role", name, sorted(roles), "is not in [roles] of the configuration (there")
    return roles[name]


def _check_role(name: str, said: object) -> Role:
    where = f"[roles.{name}]"
    if not isinstance(said, dict):
        raise InvalidValue("role", name, f"must be a table, written {where}")
    for key in said:
        check_known(f"key in {where}", key, Role.__struct_fields__)
    try:
        role = _read(said)
        described = describe(
            [Endpoint(host="localhost", port=1, protocol=role.protocol)],
            capabilities=role.capabilities,
            metadata=role.metadata,
            version=role.version,
            zone=role.zone,
            weight=role.weight,
        )
    except InvalidValue as error:
        raise InvalidValue(f"{where} {error.field}", error.value, error.rule, error.suggestion) from None
    return msgspec.structs.replace(role, capabilities=described.capabilities)


def _read(said: Mapping[str, object]) -> Role:
    """What is said, of the right types; `describe` knows the rules for the values."""
    if not isinstance(said.get("capabilities", []), list):
        raise InvalidValue("capabilities", said["capabilities"], "must be a list of names")
    if not isinstance(said.get("metadata", {}), dict):
        raise InvalidValue("metadata", said["metadata"], "must be a table of texts")
    given = dict(said)
    if "capabilities" in given:
        given["capabilities"] = tuple(given["capabilities"])  # type: ignore[arg-type]  # a list, as was just seen
    return Role(**given)  # type: ignore[arg-type]  # what has another type is told by `describe`
