"""Each scenario of the benchmarks runs: a tiny one against adsum alone, and against peers where they can be had."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.compare import Row, compare, load, names
from benchmarks.peers import KINDS, version
from benchmarks.scenario import PERCENTILES, Curve
from benchmarks.table import table

PEERS = ["etcd", "zookeeper", "redis-notify", "sqlite", "postgres"]


def figures(row: Row) -> None:
    """It has all the figures of its scenario's table that anybody has, each a number, and those of its curves."""
    assert row.rounds, row.trouble
    for key in load(row.scenario).columns:
        figure = row.figure(key)
        assert figure is None or all(value == value for value in figure), (key, figure)  # not nan
    assert any(row.figure(key) for key in load(row.scenario).columns)
    for curve in load(row.scenario).curves:
        for key in [curve.y] if isinstance(curve, Curve) else PERCENTILES:
            assert row.figure(key) is not None, key


QUICKEST = ("visibility", "burst", "picks", "fanout")


@pytest.mark.parametrize(
    "name", [name if name in QUICKEST else pytest.param(name, marks=pytest.mark.long) for name in names()]
)
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


def test_who_cannot_be_had_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is absent with its reason, not failed; what fails is not absent, and the exit code tells."""
    monkeypatch.setattr("benchmarks.peers.sqlite.missing", lambda: "no SQLite: install it")
    file = tmp_path / "figures.json"
    asked = ["compare", "burst", "--tiny", "--rounds", "1", "--set", "instances=100", "--json", str(file), "--only"]
    assert main([*asked, "adsum", "sqlite"]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^sqlite: absent: no SQLite: install it$", out, re.M)
    assert re.search(r"^\| instances 100, caches 1 \| sqlite +\| absent: no SQLite: install it", out, re.M)
    assert "round 1, adsum" in err
    told = json.loads(file.read_text())
    assert told["machine"]["cores"] > 0
    [adsum, absent] = told["rows"]
    assert (adsum["contender"], len(adsum["rounds"]), adsum["trouble"]) == ("adsum", 1, "")
    assert (absent["contender"], absent["rounds"], absent["absent"]) == ("sqlite", [], True)

    monkeypatch.setitem(KINDS, "etcd", KINDS["adsum"]._replace(server={"unknown": True}))
    assert main([*asked, "etcd", "sqlite"]) == 1
    assert re.search(r"\| etcd +\| failed: TypeError", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["burst", "--only", "nobody"], "there is no contender nobody; known are adsum"),
        (["burst", "--set", "instance=3"], "there is no field instance; known are instances, caches"),
        (["burst", "--json", "/nowhere/at/all.json"], "there is no folder /nowhere/at for all.json"),
        (["burst", "--set", "instances=0"], "instances=0 is not FIELD=NUMBER with a number above 0"),
        (["burst", "--set", "instances=many"], "instances=many is not FIELD=NUMBER"),
        (["burst", "--rounds", "0"], "0 is no whole number above 0"),
    ],
)
def test_what_names_nothing_is_refused_before_anything_is_measured(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a misspelt field has the default measured, and hours are lost to a folder that is not there."""
    try:
        code = main(["compare", "--tiny", *arguments])
    except SystemExit as end:
        code = int(str(end.code))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert told in err
