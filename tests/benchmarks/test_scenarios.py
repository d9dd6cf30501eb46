"""Each scenario of the benchmarks runs: a tiny one against adsum alone, and against peers where they can be had."""

from __future__ import annotations

import pytest

from benchmarks.compare import Row, compare, load, names
from benchmarks.peers import KINDS, version
from benchmarks.table import table

PEERS = ["etcd", "zookeeper", "redis-notify", "sqlite", "postgres"]


def figures(row: Row) -> None:
    """It has all the figures of its scenario's table that anybody has, each a number."""
    assert row.rounds, row.trouble
    for key in load(row.scenario).columns:
        figure = row.figure(key)
        assert figure is None or all(value == value for value in figure), (key, figure)  # not nan
    assert any(row.figure(key) for key in load(row.scenario).columns)


@pytest.mark.parametrize("name", names())
async def test_a_scenario_runs_against_adsum(name: str) -> None:
    """Every row has its figures, and nothing was lost on the way."""
    rows = await compare(name, "tiny", only=["adsum"])
    assert rows
    for row in rows:
        figures(row)
        assert row.figure("unseen") in (None, (0, 0, 0))
    text = table(name, rows)
    assert load(name).title in text
    assert "adsum" in text


@pytest.mark.parametrize("kind", PEERS)
async def test_a_peer_runs_where_it_can_be_had(kind: str) -> None:
    """A burst goes through registering, watching and accounting."""
    told = version(kind)
    if told.startswith("absent"):
        pytest.skip(told)
    [row] = await compare("burst", "tiny", only=[kind])
    figures(row)
    assert row.figure("unseen") == (0, 0, 0)


async def test_who_cannot_be_had_is_named_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is absent with its reason, not failed; what fails is not absent."""
    monkeypatch.setattr("benchmarks.peers.sqlite.missing", lambda: "no SQLite: install it")
    monkeypatch.setitem(KINDS, "etcd", KINDS["adsum"]._replace(server={"unknown": True}))
    rows = await compare("burst", "tiny", only=["adsum", "etcd", "sqlite"])
    found = {row.contender: (row.absent, bool(row.trouble), len(row.rounds)) for row in rows}
    assert found == {"adsum": (False, False, 1), "etcd": (False, True, 0), "sqlite": (True, True, 0)}
    lines = table("burst", rows).splitlines()
    assert any("| sqlite" in line and "absent: no SQLite: install it" in line for line in lines)
    assert any("| etcd" in line and "failed: TypeError" in line for line in lines)
