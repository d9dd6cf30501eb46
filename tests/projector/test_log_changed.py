"""A log that is not the one the catalog was folded from is refused, whatever way it changed (fault 18)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.daemons import Service, adsumd, topology
from tests.making import key
from tests.projector.test_daemon import FREE, connected, refused
from tests.waiting import until


async def live(data: Path, catalog: str, ids: list[str]) -> None:
    """A daemon runs for a while and these are registered."""
    async with adsumd(data, *FREE, "--catalog", catalog) as daemon:
        bus = await connected(daemon.url)
        for id in ids:
            await Service(bus, key(id), heartbeat=5, ttl=300).register()
        await until(lambda: topology(bus, key(ids[-1])))
        await bus.close()


@pytest.mark.parametrize(
    ("since", "told"),
    [
        ([], "the log ends at 1, the catalog stands at 3"),
        (["x", "y"], "another event"),
        (["x", "y", "z", "w"], "another event"),
    ],
)
async def test_an_older_copy_put_back(tmp_path: Path, since: list[str], told: str) -> None:
    """Shorter than the catalog knows it, or grown as long, or longer again: same epoch, same creation time."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    catalog = f"sqlite:///{tmp_path / 'catalog.db'}"
    await live(data, catalog, ["a"])
    shutil.copytree(data, copy)
    await live(data, catalog, ["b", "c"])
    shutil.rmtree(data)
    copy.rename(data)
    if since:
        await live(data, f"sqlite:///{tmp_path / 'other.db'}", since)
    line = await refused(data, *FREE, "--catalog", catalog)
    assert told in line
    assert "--catalog" in line


async def test_a_catalog_of_an_older_state_catches_up(tmp_path: Path) -> None:
    """The other way round is no fault: the catalog goes on from where its copy was taken."""
    data = tmp_path / "data"
    catalog, copy = tmp_path / "catalog.db", tmp_path / "copy.db"
    await live(data, f"sqlite:///{catalog}", ["a"])
    shutil.copy(catalog, copy)
    await live(data, f"sqlite:///{catalog}", ["b", "c"])
    async with adsumd(data, *FREE, "--catalog", f"sqlite:///{copy}") as daemon:
        assert daemon.line.endswith("revision=3")
