"""A container engine for the tests that need one; without one they are skipped, and say why."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import docker
import docker.errors
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here."""
    for item in items:
        if "tests/containers/" in item.path.as_posix():
            item.add_marker(pytest.mark.containers)
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """The engine that DOCKER_HOST names, or the one of this machine."""
    client, why = _connected()
    if client is None:
        pytest.skip(f"no container engine answers (DOCKER_HOST may name one): {why}")
    yield client
    client.close()


def _connected() -> tuple[docker.DockerClient | None, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the client leaves its socket open when nobody answers
        try:
            return docker.from_env(timeout=30), ""
        except docker.errors.DockerException as error:
            why = str(error)
        gc.collect()
    return None, why
